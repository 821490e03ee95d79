"""`tuneparts search | resume`: run a search, follow it, and print the table that answers it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuneparts import settings
from tuneparts.cli import signals
from tuneparts.cli.output import Form, terminal
from tuneparts.errors import AllFailedError, ConfigError, InterruptedRunError
from tuneparts.executors.choice import suited
from tuneparts.redaction import redact
from tuneparts.search import load, runs

if TYPE_CHECKING:  # they bring torch and pandas, and a mistake is told before
    from rich.console import Console

    from tuneparts.api.results import Results
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
    form: Form = Form.TABLE,
) -> None:
    """Resolve a search, then run it or print its plan; `resume` continues its newest run."""
    path = load.check(name, scale=scale, trials=trials, changes=changes)
    console = terminal(form)
    question = load.question(path)
    console.print(f"{path.stem} at scale {scale}: {question}", highlight=False, markup=False)
    with console.status("reading the search file"):
        resolved = load.load(
            name, scale=scale, trials=trials, seeds=seeds, arms=arms, changes=changes
        )
        from tuneparts.api import running
    executor = place.executor(resolved)  # refuses what contradicts itself, before there is a run
    if dry_run:
        from tuneparts.cli import estimate

        resolved = running.fitted(
            resolved, executor=executor, address=place.address, cpus=place.cpus
        )
        running.check(resolved)
        estimate.print_plan(resolved, console, form)
        return
    refuse_temporary_results()
    with running.connected(resolved, place.address, console):
        resolved = running.fitted(
            resolved, executor=executor, address=place.address, cpus=place.cpus
        )
        found = runs.newest_of(settings.current().results_dir, resolved) if resume else None
        made = found or running.create(resolved, storage=storage, address=place.address)
        execute(made, place, console=console, form=form)


def resume(name: str | None, *, place: Place, retry_failed: bool = False) -> None:
    """Continue a run; one that is already done only gets its report again.

    Args:
        name: of the run; the newest when None.
        place: where trials run.
        retry_failed: whether failed trials are tried again.
    """
    refuse_temporary_results()
    found = runs.named(settings.current().results_dir, name, begun=True)
    console = terminal()
    _refuse_other_place(found, place)
    console.print(found.card["search"].get("question", ""), highlight=False, markup=False)
    execute(found, place, retry_failed=retry_failed, console=console)


def _refuse_other_place(run: runs.Run, place: Place) -> None:
    """Ask before a cluster's run goes on here, unless `--local` or `--ray` say so.

    Raises:
        ConfigError: There is nobody to ask, or the answer is no.
    """
    address = run.card.get("address")
    if address is None or place.address is not None or place.is_local or place.is_ray:
        return
    if sys.stdin.isatty():
        import typer

        question = f"{run.name} ran on the Ray cluster at {address}. Continue it on this machine?"
        if typer.confirm(question):
            return
    raise ConfigError(
        f"a run goes on where it began unless it is told otherwise, and {run.name} ran on the Ray "
        f"cluster at {address}. Say `--address {address}`, or `--local` or `--ray` for this "
        "machine."
    )


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


def execute(
    made: runs.Run,
    place: Place,
    *,
    console: "Console",
    retry_failed: bool = False,
    form: Form = Form.TABLE,
) -> None:
    """Run what is left of a run, follow it, and print what it found."""
    console.print(f"run {made.name}", highlight=False, soft_wrap=True)
    with console.status("reading what the run needs"):
        from tuneparts.api import running
        from tuneparts.cli import reading as report

        executor = place.executor(made.search)
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
    console.print(where_to_look(made), highlight=False, markup=False, soft_wrap=True)
    if form is not Form.TABLE:
        report.write(results, form)
    _refuse_nothing(results)


def where_to_look(run: runs.Run) -> str:
    """Where MLflow shows a run: a link to its experiment on a server, else the verb that serves it.

    The server is not asked: the run's folder knows the experiment since it was tracked.
    """
    from tuneparts.tracking import card, record, store

    uri = settings.current().tracking_uri
    if not store.is_server(uri):
        return "MLflow UI   tuneparts ui --open"
    known, server = record.load(run.folder), redact(uri).rstrip("/")
    if known is None or known.experiment is None:
        return f"MLflow      {server}"
    return f"MLflow      {server}/{card.run_link(known.experiment, '')}"


def _refuse_nothing(results: "Results") -> None:
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
