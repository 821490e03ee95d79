"""`tuneparts search | resume`: run a search, follow it, and print the table that answers it."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from tuneparts import api, executors, provenance, settings
from tuneparts.cli import estimate, report
from tuneparts.cli.live import LiveView
from tuneparts.errors import ConfigError, TunepartsError
from tuneparts.journal import TrialId
from tuneparts.redaction import redact
from tuneparts.reports.figures import gallery
from tuneparts.search import load, runs
from tuneparts.search.storage import refuse_keys

if TYPE_CHECKING:
    from tuneparts.tracking.tracker import Status, Tracker

INTERRUPTED = 130
"""Exit code of a process that ended by Ctrl-C."""
PATIENCE = 30.0
"""Seconds without progress after which a store that does not answer is left alone."""


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
    for figure in resolved.figures:
        gallery.parse(figure)
    if dry_run:
        estimate.print_plan(resolved)
        return
    made = runs.create(
        settings.current().results_dir,
        resolved,
        command=redact(shlex.join(["tuneparts", *sys.argv[1:]])),
        commit=provenance.commit(),
        versions=provenance.versions(),
        storage=None if storage is None else refuse_keys(storage),
    )
    _run(made, place)


def resume(name: str | None, *, place: Place) -> None:
    """Continue a run; one that is already done only gets its report again."""
    _run(runs.named(settings.current().results_dir, name), place)


def _run(made: runs.Run, place: Place) -> None:
    """Run what is left of a run, and print its table whatever MLflow does."""
    console = Console()
    # The lock comes first: a second driver must not touch the runs in MLflow.
    with executors.lock(made.folder):
        from tuneparts.tracking.tracker import Tracker

        console.print(made.search.question, highlight=False, markup=False)
        console.print(f"run {made.name}", highlight=False, soft_wrap=True)
        tracker = Tracker(
            settings.current().tracking_uri, folder=made.folder, search=api.tracking_card(made)
        )
        status: Status = "FAILED"
        try:
            status = _execute(made, tracker, console, place)
            if status == "FINISHED":
                _publish(made, tracker, console)
        finally:
            with console.status("sending the last of it to MLflow"):
                problems = tracker.close(status, timeout=PATIENCE)
            for problem in problems:
                console.print(f"tracking: {problem}", style="yellow", highlight=False)
    if status == "KILLED":
        console.print(f"Interrupted; nothing is lost. Continue with: tuneparts resume {made.name}")
        raise SystemExit(INTERRUPTED)
    console.print("MLflow UI   tuneparts ui", highlight=False)


def _execute(made: runs.Run, tracker: "Tracker", console: Console, place: Place) -> "Status":
    """Run the trials that are left; returns how the run in MLflow shall end."""
    with LiveView(made.search, console) as view:
        ending = executors.execute(
            made.search,
            folder=made.folder,
            executor="local" if place.is_local else "ray",
            observers=[tracker, view],
            address=place.address,
            storage=made.card["storage"],
        )
    return "FINISHED" if ending.status == "done" else "KILLED"


def _publish(made: runs.Run, tracker: "Tracker", console: Console) -> None:
    """Print the table, write the report, and put both onto the run in MLflow."""
    from tuneparts.tracking.card import SELECTED_TAG

    # The report names MLflow's run of each trial, so it waits for a store that is just slow.
    with console.status("sending the last numbers to MLflow"):
        tracker.flush(PATIENCE / 3)
    results = api.Results(made)
    report.show(results, console)
    tracker.log_artifact(made.folder / "report")
    tracker.describe(results.description())
    for trial in results.selected["trial"]:
        tracker.tag_trial(TrialId.parse(trial), {SELECTED_TAG: "yes"})
    if made.search.keep_models:
        _keep_models(results, tracker, console)


def _keep_models(results: api.Results, tracker: "Tracker", console: Console) -> None:
    """Log the final net of every selected trial; numbers are safe, so a failure is only told."""
    from tuneparts.cli import register

    with console.status("keeping models in MLflow"):
        if not tracker.flush(PATIENCE):
            console.print("no model is kept: MLflow does not answer", style="yellow")
            return
        for trial in results.selected["trial"]:
            try:
                register.keep(results, TrialId.parse(trial))
            except TunepartsError as error:
                console.print(f"no model of {trial}: {error}", style="yellow", highlight=False)
