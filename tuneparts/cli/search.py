"""`tuneparts search | resume`: run a search, follow it, and print the table that answers it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from tuneparts import settings
from tuneparts.api import running
from tuneparts.api.results import Results
from tuneparts.cli import estimate, report, signals
from tuneparts.errors import AllFailedError, ConfigError, InterruptedRunError
from tuneparts.executors.choice import suited
from tuneparts.search import load, runs

if TYPE_CHECKING:
    from tuneparts.search.spec import Search

INTERRUPTED = 130
"""Exit code of a process that ended by Ctrl-C."""


@dataclass(frozen=True)
class Place:
    """Where trials run."""

    address: str | None = None
    """HOST:PORT of a Ray cluster; None for this machine."""
    is_local: bool = False
    """Whether they run in processes of this machine, without Ray, whatever suits them."""
    is_ray: bool = False
    """Whether they run on Ray, whatever suits them."""
    cpus: float | None = None
    """CPUs that they may fill; None for all."""

    def executor(self, search: "Search") -> Literal["local", "ray"]:
        """Who runs them: as told, or as it suits the search."""
        if self.is_local and (self.is_ray or self.address is not None):
            other = "--ray" if self.is_ray else "--address"
            raise ConfigError(f"`--local` runs a search without Ray, but got `{other}` too.")
        if self.is_ray or self.address is not None:
            return "ray"
        return "local" if self.is_local else suited(search)


def parse_seeds(text: str | None) -> list[int] | None:
    """`0,1,2` as numbers."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"seeds are whole numbers with commas, but got `{text}`.") from None


def search(
    name: str,
    *,
    scale: str,
    place: Place,
    trials: int | None,
    seeds: Sequence[int] | None,
    arms: Sequence[str] | None,
    changes: Sequence[str],
    storage: str | None,
    dry_run: bool,
    resume: bool = False,
) -> None:
    """Resolve a search, then run it or print its plan; `resume` continues its newest run."""
    resolved = load.load(name, scale=scale, trials=trials, seeds=seeds, arms=arms, changes=changes)
    executor = place.executor(resolved)  # refuses what contradicts itself, before there is a run
    resolved = running.fitted(resolved, executor=executor, address=place.address, cpus=place.cpus)
    if dry_run:
        running.check(resolved)
        estimate.print_plan(resolved)
        return
    refuse_temporary_results()
    found = runs.newest_of(settings.current().results_dir, resolved) if resume else None
    execute(found or running.create(resolved, storage=storage), place)


def resume(
    name: str | None, *, place: Place, retry_failed: bool = False, storage: str | None = None
) -> None:
    """Continue a run; one that is already done only gets its report again.

    Args:
        name: of the run; the newest when None.
        place: where trials run.
        retry_failed: whether failed trials are tried again.
        storage: what the user knows to be the run's storage; needed once where it came from
            elsewhere.
    """
    refuse_temporary_results()
    found = runs.named(settings.current().results_dir, name)
    if storage is not None:
        runs.confirm_storage(found, storage)
    execute(found, place, retry_failed=retry_failed)


def refuse_temporary_results() -> None:
    """Refuse to write into the copy of the code that Ray makes for a job, and removes after it.

    Raises:
        ConfigError: This process is a job, and was not told where results go.
    """
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        return
    results = settings.current().results_dir
    if results.is_relative_to(Path.cwd()):
        raise ConfigError(
            f"results outlive the job that makes them, but they would lie in {results}, which Ray "
            "removes. Name a folder that stays: `tuneparts submit --results PATH`, or "
            "TUNEPARTS_RESULTS on the cluster."
        )


def execute(made: runs.Run, place: Place, *, retry_failed: bool = False) -> None:
    """Run what is left of a run, follow it, and print what it found."""
    executor = place.executor(made.search)
    console = Console()
    console.print(made.search.question, highlight=False, markup=False)
    console.print(f"run {made.name}", highlight=False, soft_wrap=True)
    with signals.as_ctrl_c() as came:
        try:
            results = running.execute(
                made,
                executor=executor,
                address=place.address,
                retry_failed=retry_failed,
                cpus=place.cpus,
                console=console,
                show=lambda results: report.show(results, console),
            )
        except InterruptedRunError as error:
            console.print(str(error), highlight=False, soft_wrap=True)
            raise SystemExit(128 + came[0] if came else INTERRUPTED) from None
    console.print("MLflow UI   tuneparts ui", highlight=False)
    _refuse_nothing(results)


def _refuse_nothing(results: Results) -> None:
    """End with an error where a search found nothing, so that a script hears of it.

    Raises:
        AllFailedError: Every trial failed.
    """
    trials = results.trials
    if len(trials) and (trials["outcome"] == "failed").all():
        first = trials.iloc[0]
        raise AllFailedError(
            f"a search finds something if at least one trial finishes, but all {len(trials)} "
            f"failed; {first['trial']}: {first['error']} Logs and tracebacks lie with the run; "
            f"`tuneparts resume {results.run.name} --retry-failed` tries again."
        )
