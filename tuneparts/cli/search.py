"""`tuneparts search | resume`: run a search, follow it, and print the table that answers it."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tuneparts import settings
from tuneparts.api import running
from tuneparts.cli import estimate, report, signals
from tuneparts.errors import ConfigError, InterruptedRunError
from tuneparts.search import load, runs

INTERRUPTED = 130
"""Exit code of a process that ended by Ctrl-C."""


@dataclass(frozen=True)
class Place:
    """Where trials run."""

    address: str | None = None
    """HOST:PORT of a Ray cluster; None for a Ray of this machine's own."""
    is_local: bool = False
    """Whether they run in processes of this machine, without Ray."""


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
) -> None:
    """Resolve a search, then run it or print its plan."""
    resolved = load.load(name, scale=scale, trials=trials, seeds=seeds, arms=arms, changes=changes)
    if dry_run:
        estimate.print_plan(resolved)
        return
    _run(running.create(resolved, storage=storage), place)


def resume(name: str | None, *, place: Place) -> None:
    """Continue a run; one that is already done only gets its report again."""
    _run(runs.named(settings.current().results_dir, name), place)


def _run(made: runs.Run, place: Place) -> None:
    console = Console()
    console.print(made.search.question, highlight=False, markup=False)
    console.print(f"run {made.name}", highlight=False, soft_wrap=True)
    with signals.as_ctrl_c() as came:
        try:
            running.execute(
                made,
                executor="local" if place.is_local else "ray",
                address=place.address,
                console=console,
                show=lambda results: report.show(results, console),
            )
        except InterruptedRunError as error:
            console.print(str(error), highlight=False, soft_wrap=True)
            raise SystemExit(128 + came[0] if came else INTERRUPTED) from None
    console.print("MLflow UI   tuneparts ui", highlight=False)
