"""Run a search, or continue one, and follow it on the way."""

import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tuneparts import executors
from tuneparts.core import environment, provenance, schema, settings
from tuneparts.core.errors import ConfigError, InterruptedRunError, TunepartsError
from tuneparts.core.redaction import redact
from tuneparts.executors.place import Executor, Place
from tuneparts.results.describing import log_reader, tracking_card
from tuneparts.results.figures import gallery
from tuneparts.results.live import LiveView
from tuneparts.results.results import Results
from tuneparts.search import load as search_files
from tuneparts.search import runs
from tuneparts.search.declared import declared_metrics
from tuneparts.search.journal import TrialId
from tuneparts.search.storage import refuse_keys

if TYPE_CHECKING:
    from tuneparts.search.spec import Search
    from tuneparts.tracking.tracker import Status, Tracker

PATIENCE = 30.0
"""Seconds without progress after which a store that does not answer is left alone."""


def run(
    search: "Search | str | Path",
    *,
    scale: str = "cpu",
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    changes: Sequence[str] = (),
    executor: Executor = "local",
    address: str | None = None,
    workers: int | None = None,
    cpus: float | None = None,
    storage: str | None = None,
    console: Console | None = None,
) -> Results:
    """Run a search to its end, and return what it found.

    The run is written to the results folder and to MLflow on the way, so an interrupted one can be
    continued with `resume`.

    Args:
        search: A search; or the name or path of a search file, which the next five arguments
            change as the options of `tuneparts search` do.
        scale: smoke, cpu or paper.
        trials: Trials per searching arm.
        seeds: Replicates.
        arms: Run these only, with the arms that they follow.
        changes: `PATH=VALUE` each.
        executor: `local` for processes of this machine, `ray` for Ray.
        address: HOST:PORT of a Ray cluster; implies `ray`.
        workers: Processes of the local executor; as many as the machine has room for when None.
        cpus: CPUs that trials may fill; all of the cluster, or those that this process may use,
            when None.
        storage: Where checkpoints lie, a path or URI that all nodes reach; in the run's folder
            when None.
        console: Where progress is shown; when None this process's terminal or notebook, or stderr.

    Raises:
        InterruptedRunError: Ctrl-C; nothing is lost.
    """
    if isinstance(search, str | Path):
        resolved = search_files.load(
            str(search), scale=scale, trials=trials, seeds=seeds, arms=arms, changes=changes
        )
    elif trials is not None or seeds is not None or arms is not None or changes:
        raise ConfigError(
            "a search that is given as an object is run as it is, but got changes to it. Use "
            "`search.replaced({...})`, or name a search file."
        )
    else:
        resolved = search
    console = console or usual_console()
    from tuneparts.executors.place import fitted  # brings torch

    place = place_of(executor, address, workers, cpus)
    with connected(resolved, address, console):
        # What some algorithms find depends on the width, so the run keeps it wherever it goes on.
        made = create(fitted(resolved, place), storage=storage, address=address)
        return execute(made, place, console=console)


def resume(
    name: str | None = None,
    *,
    executor: Executor = "local",
    address: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    cpus: float | None = None,
    console: Console | None = None,
) -> Results:
    """Continue a run; one that is already done only gets its report again.

    Args:
        name: `SEARCH/TIME-DIGEST`, or a search's name for its newest run; None for the newest. A
            run of which no trial ever ran is found by its full name only.
        executor: As of `run`; it need not be the one that the run began with.
        address: As of `run`.
        workers: As of `run`.
        retry_failed: Run trials that failed again, from their last checkpoint. Those whose failure
            has already decided something, in an adaptive algorithm or a follower, stay failed.
        cpus: As of `run`.
        console: As of `run`.

    Raises:
        InterruptedRunError: Ctrl-C; nothing is lost.
    """
    return execute(
        runs.named(settings.current().results_dir, name, begun=True),
        place_of(executor, address, workers, cpus),
        retry_failed=retry_failed,
        console=console,
    )


def place_of(
    executor: Executor, address: str | None, workers: int | None, cpus: float | None
) -> Place:
    """The place that arguments of `run` name; an address implies Ray."""
    is_ray = executor == "ray" or address is not None
    return Place(address, is_local=not is_ray, is_ray=is_ray, cpus=cpus, workers=workers)


def usual_console() -> Console:
    """Where progress is shown that nobody has placed: a terminal, a notebook, or else stderr."""
    console = Console()
    is_seen = console.is_terminal or console.is_jupyter
    return console if is_seen else Console(stderr=True)


@contextmanager
def connected(search: "Search", address: str | None, console: Console) -> Iterator[None]:
    """Be in the cluster at an address before a run is made: one that cannot start leaves nothing.

    Args:
        search: what will run there.
        address: HOST:PORT; nothing is done without one.
        console: says that the cluster is asked.

    Raises:
        ClusterError: Nobody answers there, or not to us.
        PlacementError: A trial does not fit the cluster.
    """
    if address is None:
        yield
        return
    from tuneparts.executors.place import bundles
    from tuneparts.executors.ray import cluster

    console.print(f"joining the Ray cluster at {redact(address)}", highlight=False)
    logging.getLogger("ray").handlers = [logging.NullHandler()]  # what matters is an error
    with cluster.joined_once(address):
        needs = {arm.name: bundles(arm) for arm in search.arms}
        cluster.await_room(needs, settings.current().node_limit)
        yield


def check(search: "Search") -> None:
    """Refuse a search that cannot run or be reported here; nothing is written.

    Raises:
        ConfigError: With what is wrong, and the cure.
    """
    from tuneparts.search.check import check as check_arms  # brings torch

    with schema.using(*declared_metrics(search)):  # refuses two metrics of one name
        for figure in search.figures:
            gallery.parse(figure)
        check_arms(search)


def create(search: "Search", *, storage: str | None = None, address: str | None = None) -> runs.Run:
    """Make the folder of a new run, with what the search is and where it comes from.

    Raises:
        ConfigError: The search cannot run; then there is no folder.
    """
    check(search)
    return runs.create(
        settings.current().results_dir,
        search,
        **origin(),
        storage=None if storage is None else refuse_keys(storage),
        **({} if address is None else {"address": redact(address)}),
    )


def origin() -> dict[str, Any]:
    """Who asks for something, by which command and with which code; for the card of a run."""
    return {
        **environment.facts(),
        "command": redact(shlex.join(["tuneparts", *sys.argv[1:]])),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "user": provenance.user(),
        "machine": provenance.machine(),
    }


def execute(
    made: runs.Run,
    place: Place,
    *,
    retry_failed: bool = False,
    console: Console | None = None,
    show: Callable[[Results], object] = Results.write_report,
) -> Results:
    """Run what is left of a run, write its report, and put both into MLflow.

    Args:
        made: The run.
        place: Where trials run.
        retry_failed: As of `resume`.
        console: As of `run`.
        show: Called with the results, whatever MLflow does; writes the report at the least.
    """
    from tuneparts.tracking.tracker import Tracker

    console = console or usual_console()
    # The lock comes first: a second driver must not touch the runs in MLflow.
    with executors.lock(made.folder), schema.using(*declared_metrics(made.search)):
        if retry_failed:
            _retry_failed(made, console)
        tracker = Tracker(
            settings.current().tracking_uri,
            folder=made.folder,
            search=tracking_card(made),
            read_log=log_reader(made),
        )
        status: Status = "FAILED"
        try:
            executor = place.executor(made.search)
            is_starting_ray = executor == "ray" and place.address is None
            starting = "starting Ray" if is_starting_ray else "starting workers"
            with LiveView(made.search, console, starting=starting) as view:
                ending = executors.execute(
                    made.search,
                    folder=made.folder,
                    executor=executor,
                    observers=[tracker, view],
                    address=place.address,
                    storage=made.storage,
                    workers=place.workers,
                    cpus=place.cpus,
                    watch=view.watch,
                )
            status = "FINISHED" if ending.status == "done" else "KILLED"
            results = _publish(made, tracker, console, show) if status == "FINISHED" else None
        finally:
            with console.status("sending the last of it to MLflow"):
                problems = tracker.close(status, timeout=PATIENCE)
            for problem in problems:
                console.print(f"tracking: {problem}", style="yellow", highlight=False)
    if results is None:
        raise InterruptedRunError(
            f"Interrupted; nothing is lost. Continue with: tuneparts resume {made.name}"
        )
    return results


def _retry_failed(made: runs.Run, console: Console) -> None:
    """Let failed trials run again, and say which."""
    from tuneparts.search.retry import retry_failed

    with made.code.importable():
        done = retry_failed(made.search, made.folder / "journal.jsonl", made.storage)
    console.print(f"{len(done.retried)} failed trials are tried again", highlight=False)
    if done.decided:
        names = ", ".join(map(str, done.decided[:5])) + ("..." if len(done.decided) > 5 else "")
        console.print(
            f"{len(done.decided)} stay failed, because the search has gone on from that: {names}",
            highlight=False,
        )


def _publish(
    made: runs.Run, tracker: "Tracker", console: Console, show: Callable[[Results], object]
) -> Results:
    """Show the results, and put them onto the run in MLflow."""
    from tuneparts.tracking.card import SELECTED_TAG

    # The report names MLflow's run of each trial, so it waits for a store that is just slow.
    with console.status("sending the last numbers to MLflow"):
        tracker.flush(PATIENCE / 3)
    results = Results(made, has_run=True)
    show(results)
    tracker.log_artifact(made.folder / "report")
    tracker.describe(results.description())
    selected = {TrialId.parse(trial) for trial in results.selected["trial"]}
    for trial in sorted(selected):
        tracker.tag_trial(trial, {SELECTED_TAG: "yes"})
    for trial in tracker.tagged(SELECTED_TAG, "yes") - selected:  # of a run that grew since
        tracker.tag_trial(trial, {SELECTED_TAG: "no"})
    if made.search.keep_models:
        _keep_models(results, tracker, console)
    return results


def _keep_models(results: Results, tracker: "Tracker", console: Console) -> None:
    """Log the final net of every selected trial; numbers are safe, so a failure is only told."""
    with console.status("keeping models in MLflow"):
        if not tracker.flush(PATIENCE):
            console.print("no model is kept: MLflow does not answer", style="yellow")
            return
        fresh = Results(results.run)  # which knows the ids that MLflow has given since
        for trial in results.selected["trial"]:
            try:
                fresh.keep_model(TrialId.parse(trial))
            except TunepartsError as error:
                console.print(f"no model of {trial}: {error}", style="yellow", highlight=False)
