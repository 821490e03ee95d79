"""`tuneparts search | resume`: the driver, with tracking, the live view and the report."""

import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from tuneparts import provenance, settings
from tuneparts.cli import answers, estimate
from tuneparts.cli.live import LiveView
from tuneparts.errors import ConfigError, TunepartsError
from tuneparts.glossary import PASS_IN_SHORT
from tuneparts.journal import TrialId
from tuneparts.redaction import redact
from tuneparts.reports.figures import gallery
from tuneparts.reports.rendering import Table, show
from tuneparts.search import load, runs
from tuneparts.search.storage import refuse_keys

INTERRUPTED = 130
"""Exit code of a process that ended by Ctrl-C."""


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
    address: str | None,
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
        _print_plan(resolved)
        return
    run = runs.create(
        settings.current().results_dir,
        resolved,
        command=redact(shlex.join(["tuneparts", *sys.argv[1:]])),
        commit=provenance.commit(),
        versions=provenance.versions(),
        storage=None if storage is None else refuse_keys(storage),
    )
    _drive(run, resolved, address)


def resume(name: str | None, *, address: str | None) -> None:
    """Continue a run; one that is already done only gets its report again."""
    run = runs.named(settings.current().results_dir, name)
    _drive(run, run.search(), address)


def _drive(run: runs.Run, search: Any, address: str | None) -> None:
    """Run what is left, under the lock: a second driver must not touch the runs in MLflow."""
    from tuneparts.run import lock

    with lock(run.folder):
        _drive_held(run, search, address)


def _drive_held(run: runs.Run, search: Any, address: str | None) -> None:
    from tuneparts.run import execute
    from tuneparts.tracking.tracker import Tracker

    console = Console()
    console.print(f"{search.question}\nrun {run.name} in {run.folder}", highlight=False)
    tracker = Tracker(
        settings.current().tracking_uri, folder=run.folder, search=answers.card(run, search)
    )
    status = "FAILED"
    try:
        with LiveView(search, console) as view:
            ending = execute(
                search,
                folder=run.folder,
                observers=[tracker, view],
                address=address,
                storage=run.card()["storage"],
            )
        status = "FINISHED" if ending.status == "done" else "KILLED"
        if status == "FINISHED" and tracker.flush():
            _publish(run, search, tracker, console)
    finally:
        for problem in tracker.close(status):  # type: ignore[arg-type]
            console.print(f"tracking: {problem}", style="yellow", highlight=False)
    if status == "KILLED":
        console.print(f"Interrupted; nothing is lost. Continue with: tuneparts resume {run.name}")
        raise SystemExit(INTERRUPTED)
    console.print(f"report      {run.folder / 'report' / 'report.html'}", highlight=False)
    console.print("MLflow UI   tuneparts ui", highlight=False)


def _publish(run: runs.Run, search: Any, tracker: Any, console: Console) -> None:
    """Write the report, and put it with what it says onto the runs in MLflow."""
    from tuneparts.tracking.card import SELECTED_TAG

    run_data = answers.gather(run, console)
    answers.write_report(run, run_data, console)
    tracker.log_artifact(run.folder / "report")
    tracker.describe(answers.description(run_data))
    for trial in run_data.selected["trial"]:
        tracker.tag_trial(TrialId.parse(trial), {SELECTED_TAG: "yes"})
    if search.keep_models and tracker.flush():
        from tuneparts.cli import models

        uri = settings.current().tracking_uri
        for row in run_data.selected.to_dict("records"):
            try:
                models.keep(run, search, row["trial"], row["run_id"], uri)
            except TunepartsError as error:  # numbers are safe; a model is an extra
                console.print(f"no model of {row['trial']}: {error}", style="yellow")


def _print_plan(search: Any) -> None:
    """Trials, passes, resources and estimated time of each arm."""
    console = Console()
    costs = estimate.seconds_per_arm(search, console)
    rows = []
    for arm in search.arms:
        seeds = search.seeds_of(arm)
        trials = arm.trials_per_seed * len(seeds)
        passes = estimate.passes_of(arm) * len(seeds)
        needs = f"{arm.resources.cpus:g} CPU"
        if arm.resources.gpus:
            needs += f", {arm.resources.gpus:g} GPU"
        rows.append(
            [
                arm.name,
                arm.config.model_dump()["method"],
                arm.algorithm.kind + (f" after {arm.follows}" if arm.follows else ""),
                ",".join(map(str, seeds)),
                trials,
                f"{passes:,}",
                needs,
                f"{costs[arm.name] * passes / 3600:.3f}",
            ]
        )
    total = sum(
        costs[arm.name] * estimate.passes_of(arm) * len(search.seeds_of(arm)) for arm in search.arms
    )
    console.print(f"{search.question}\nsearch {search.name} at scale {search.scale}")
    console.print(f"digest {search.digest}, selection by {search.metric}", highlight=False)
    headers = ["arm", "method", "algorithm", "seeds", "trials", "passes", "needs", "hours (1 CPU)"]
    numbers = ["trials", "passes", "hours (1 CPU)"]
    notes = [f"Passes of all trials; {PASS_IN_SHORT}."]
    show(console, Table.of_rows(headers, rows, numbers=numbers, notes=notes))
    console.print(
        f"about {total / 60:.1f} minutes on one CPU, {total / 60 / estimate.cpus():.1f} on this "
        "machine, from a few passes of each arm; adaptive arms at most",
        highlight=False,
    )
