"""Run a search, continue or extend one, and put what it finds into MLflow on the way."""

import hashlib
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tuneparts import executors
from tuneparts.core import provenance, schema, settings
from tuneparts.core.errors import ConfigError, DataMissingError, InterruptedRunError, TunepartsError
from tuneparts.core.redaction import of_process, redact
from tuneparts.executors import logs
from tuneparts.executors.place import Place, bundles, fitted
from tuneparts.results.compare import Decision
from tuneparts.results.figures import gallery
from tuneparts.results.figures._style import arm_styles
from tuneparts.results.progress import _LiveView
from tuneparts.results.results import Results
from tuneparts.search import code, data_record, runs
from tuneparts.search import load as search_files
from tuneparts.search.arm import Arm
from tuneparts.search.card import UNTIL_DECIDED, RunCard
from tuneparts.search.check import check as check_arms
from tuneparts.search.events import TrialId
from tuneparts.search.extension import check_journal, extended
from tuneparts.search.extension import retry_failed as retry
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder, refuse_keys
from tuneparts.tracking.card import SELECTED_TAG, DataFacts, SearchCard
from tuneparts.tracking.record import Status
from tuneparts.tracking.tracker import Tracker

_PATIENCE = 30.0
"""Seconds without progress after which a store that does not answer is left alone."""


def run(
    search: Search | str | Path,
    *,
    scale: str = "cpu",
    trials: int | None = None,
    seeds: int | Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    changes: Sequence[str] = (),
    ray: str | None = None,
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
        seeds: Those to run under; 5 means 0 to 4.
        arms: Run these only, with their source arms.
        changes: `PATH=VALUE` each.
        ray: None for processes of this machine; HOST:PORT for a Ray cluster; "auto" for the cluster
            that RAY_ADDRESS names or this process has joined, else a Ray started here.
        workers: Processes without Ray; as many as the machine has room for when None.
        cpus: CPUs that trials may fill; all of the cluster, or those that this process may use,
            when None.
        storage: Where checkpoints lie, a path or URI that all nodes reach; in the run's folder
            when None.
        console: Where progress is shown; when None this process's terminal or notebook, or stderr.

    Raises:
        InterruptedRunError: Ctrl-C; nothing is lost.
    """
    if isinstance(seeds, int):
        seeds = range(seeds)
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
    console = console or _usual_console()
    place = _place(ray, cpus, workers)
    with begun(resolved, place, console, storage=storage) as made:
        return execute(made, place, console=console)


def resume(
    name: str | None = None,
    *,
    ray: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    cpus: float | None = None,
    console: Console | None = None,
) -> Results:
    """Continue a run; one that is already done only gets its report again.

    `name` is that of `load`. With `retry_failed` trials that failed run again, from their last
    checkpoint, unless an algorithm or another arm has used their failure. The other arguments are
    those of `run`.

    Raises:
        InterruptedRunError: Ctrl-C; nothing is lost.
    """
    run = runs.named(settings.current().results_dir, name, begun=True)
    return execute(run, _place(ray, cpus, workers), retry_failed=retry_failed, console=console)


def extend(
    name: str | None = None,
    *,
    trials: int | Mapping[str, int] | None = None,
    seeds: Sequence[int] = (),
    arms: Sequence[str | Arm] = (),
    search: str | Path | None = None,
    ray: str | None = None,
    workers: int | None = None,
    cpus: float | None = None,
    console: Console | None = None,
) -> Results:
    """Add to a run, and run what is new; the table is that of one search of the final size.

    `trials` is how many trials each searching arm has in all, or those of some arms by name;
    `seeds` are those that every arm gets besides those it has. `arms` are new ones: objects, or
    names in the search file `search` (that of the run when None), with their source arms. The other
    arguments are those of `resume`.

    Raises:
        ConfigError: It would change what the run already has; nothing is written.
        InterruptedRunError: Ctrl-C; nothing is lost, and `resume` goes on.
    """
    run, place = runs.named(settings.current().results_dir, name), _place(ray, cpus, workers)
    run, _ = grow(run, place, trials=trials, seeds=seeds, arms=arms, search=search)
    return execute(run, place, console=console)


def _place(ray: str | None, cpus: float | None, workers: int | None) -> Place:
    if ray is None:
        return Place("local", None, cpus, workers)
    return Place("ray", os.environ.get("RAY_ADDRESS") if ray == "auto" else ray, cpus, workers)


def _usual_console() -> Console:
    console = Console(highlight=False)
    is_seen = console.is_terminal or console.is_jupyter
    return console if is_seen else Console(stderr=True, highlight=False)


@contextmanager
def begun(
    search: Search,
    place: Place,
    console: Console,
    *,
    storage: str | None = None,
    resume: bool = False,
) -> Iterator[runs.Run]:
    """Make a run, or `resume` the newest of this very search; a cluster is joined before."""
    with ExitStack() as joined:
        if place.address is not None:
            from tuneparts.executors.ray import cluster

            console.print(f"joining the Ray cluster at {redact(place.address)}")
            logging.getLogger("ray").handlers = [logging.NullHandler()]  # what matters is an error
            joined.enter_context(cluster.joined_once(place.address))
            needs = {arm.name: bundles(arm) for arm in search.arms}
            cluster.await_room(needs, settings.current().node_limit)
        # What some algorithms find depends on the width, so the run keeps it wherever it goes on.
        search = fitted(search, place)
        found = runs.newest_of(settings.current().results_dir, search) if resume else None
        yield found or _create(search, storage=storage, address=place.address)


def check(search: Search) -> None:
    """Refuse a search that cannot run or be reported here; nothing is written."""
    with schema.using(*search.declared_metrics()):  # refuses two metrics of one name
        declared = (figure for arm in search.arms for figure in arm.config.figures)
        for figure in (*search.figures, *declared):
            gallery._parse(figure)
        check_arms(search)


def _create(search: Search, *, storage: str | None = None, address: str | None = None) -> runs.Run:
    """Make the folder of a new run, with what the search is and where it comes from."""
    check(search)
    facts = _origin() | {"storage": None if storage is None else refuse_keys(storage)}
    facts |= {} if address is None else {"address": redact(address)}
    return runs.create(settings.current().results_dir, search, **facts)


def _origin() -> dict[str, Any]:
    """Who asks for something, by which command and with which code; for the card of a run."""
    return {
        "packages": provenance.packages(),
        "repository": provenance.repository(Path.cwd()),
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
    """Run what is left of a run, write its report (by `show`), and put both into MLflow."""
    console = console or _usual_console()
    # The lock comes first: a second driver must not touch the runs in MLflow.
    with executors.lock(made.folder), schema.using(*made.search.declared_metrics()):
        if retry_failed:
            with made.code.importable():
                done = retry(made.search, made.folder / "journal.jsonl", made.storage)
            console.print(f"{len(done.retried)} failed trials are tried again")
            if done.decided:
                names = ", ".join(map(str, done.decided[:5])) + "..." * (len(done.decided) > 5)
                said = f"{len(done.decided)} stay failed, because the search has gone on from that"
                console.print(f"{said}: {names}")
        uri, card, read_log = settings.current().tracking_uri, tracking_card(made), log_reader(made)
        tracker = Tracker(uri, folder=made.folder, search=card, read_log=read_log)
        status: Status = "FAILED"
        try:
            place = place.settled(made.search)
            is_starting_ray = place.executor == "ray" and place.address is None
            starting = "starting Ray" if is_starting_ray else "starting workers"
            with _LiveView(made.search, console, starting=starting) as view:
                ending = executors.execute(
                    made.search, folder=made.folder, place=place, observers=[tracker, view],
                    storage=made.storage, code=made.code, watch=view.watch,
                )  # fmt: skip
            status = "FINISHED" if ending == "done" else "KILLED"
            results = _publish(made, tracker, console, show) if status == "FINISHED" else None
        finally:
            with console.status("sending the last of it to MLflow"):
                problems = tracker.close(status, timeout=_PATIENCE)
            for problem in problems:
                console.print(f"tracking: {problem}", style="yellow")
    if results is None:
        command = f"tuneparts resume {made.name}"
        raise InterruptedRunError(f"Interrupted; nothing is lost. Continue with: {command}")
    return results


def tracking_card(run: runs.Run) -> SearchCard:
    """What the parent run in MLflow shows; its params tell two searches of one name apart."""
    search, card, data = run.search, RunCard.of(run), None
    if search.data is not None:
        config = search.data.model_dump_json()
        unread = {"digest": hashlib.sha256(config.encode()).hexdigest()[:12]}
        data = DataFacts(
            name=f"rotated_{search.data.name}" if search.data.rotated else search.data.name,
            digest=lambda: str((data_record.read(run.folder) or unread)["digest"]),
            config=config,
        )
    return SearchCard(
        card,
        resolved=json.dumps(of_process().tree(run.card["search"]), indent=2),
        colours={arm: style.colour for arm, style in arm_styles(card).items()},
        data=data,
        metric=schema.lookup(search.metric),
        params={
            "scale": str(search.scale),
            "metric": search.metric,
            "steps": search.steps,
            "seeds": list(search.seeds),
            "arms": [arm.name for arm in search.arms],
            "data": "" if search.data is None else search.data.name,
            "arm": {
                arm.name: {"method": arm.config.model_dump()["method"]}
                | {"algorithm": arm.algorithm.kind, "trials_per_seed": arm.trials_per_seed}
                for arm in search.arms
            },
        },
        user=run.card.get("user", ""),
    )


def log_reader(run: runs.Run) -> Callable[[TrialId], str]:
    """Read the last lines of a trial's log, its traceback included, from the run's storage."""
    return lambda trial: "\n".join(logs.read(Folder(run.storage), trial))


def _publish(
    made: runs.Run, tracker: Tracker, console: Console, show: Callable[[Results], object]
) -> Results:
    # The report names MLflow's run of each trial, so it waits for a store that is just slow.
    with console.status("sending the last numbers to MLflow"):
        tracker.flush(_PATIENCE / 3)
    results = Results(made, has_run=True)
    show(results)
    tracker.log_artifact(made.folder / "report")
    tracker.describe(results.description())
    selected = {TrialId.parse(trial) for trial in results.selected["trial"]}
    for trial in sorted(selected):
        tracker.tag_trial(trial, {SELECTED_TAG: "yes"})
    for trial in tracker.tagged(SELECTED_TAG, "yes") - selected:  # of a run that grew since
        tracker.tag_trial(trial, {SELECTED_TAG: "no"})
    if not made.search.keep_models:
        return results
    with console.status("keeping models in MLflow"):
        if not tracker.flush(_PATIENCE):
            console.print("no model is kept: MLflow does not answer", style="yellow")
            return results
        fresh = Results(made)  # which knows the ids that MLflow has given since
        for trial in sorted(selected):
            try:
                fresh.keep_model(trial)
            except TunepartsError as error:  # numbers are safe, so it is only printed
                console.print(f"no model of {trial}: {error}", style="yellow")
    return results


def grow(
    run: runs.Run,
    place: Place,
    *,
    arms: Sequence[str | Arm] = (),
    search: str | Path | None = None,
    why: str = "",
    dry_run: bool = False,
    **more: Any,
) -> tuple[runs.Run, tuple[str, ...]]:
    """Write down what a run shall have besides what it has, unless `dry_run`; nothing runs yet.

    `arms` and `search` are those of `extend`, `more` arguments of `search.extension.extended`.
    Returns the run as it is then, and a sentence for each thing that is new.
    """
    names = [arm for arm in arms if isinstance(arm, str)]
    fresh = [arm for arm in arms if not isinstance(arm, str)]
    if search is not None and not names:
        raise ConfigError(f"`{search}`: no arm of it was named. Add `--arms NAME`.")
    with executors.lock(run.folder):
        run = runs.Run(run.root, run.name)  # as it is now that no other process can change it
        old = run.search
        if names:
            file = search_files.load(str(search or old.name), scale=str(old.scale), arms=names)
            fresh = [*file.arms, *fresh]
        if not dry_run:
            code.add(fresh, run.folder / "code")
        with code.Code.of(run.folder / "code").importable():
            grown, news = extended(old, arms=fresh, **more)
            # What old arms propose depends on the width that the run began with.
            grown = fitted(grown, place)
            check(grown)
            check_journal(grown, run.folder / "journal.jsonl")
        if news and not dry_run:
            run = runs.extend(run, grown, [*news, *filter(None, [why])], **_origin())
    return run, news


def until_decided(
    run: runs.Run,
    pair: tuple[str, str],
    place: Place,
    *,
    within: float | None = None,
    at_most: int = 20,
    metric: str = "test/accuracy",
) -> Iterator[Decision]:
    """Add seeds of two arms until their difference is decided, or there are `at_most`.

    Yields what a confidence sequence (`results.compare`) allows to say, at first and after each
    seed. It assumes no more than normal differences.
    """
    results, num = Results(run), -1
    while True:
        decision = results.decide(pair, within=within, metric=metric)
        if decision.num <= num:
            raise DataMissingError(
                f"{pair[0]}:{pair[1]}: the seed that was added has not finished in both arms. "
                f"See `tuneparts report {run.name}`."
            )
        yield decision
        if decision.verdict or decision.num >= at_most:
            return
        num = decision.num
        taken = [seed for arm in run.search.arms for seed in run.search.seeds_of(arm)]
        why = f"{UNTIL_DECIDED} {pair[0]}:{pair[1]}"
        why += "" if within is None else f" within {within:g}"
        run, _ = grow(run, place, seeds=[max(taken) + 1], only=pair, why=why)
        results = execute(run, place)
