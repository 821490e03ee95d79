"""The verbs that run searches: search, resume, extend, stop, sync."""

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from tuneparts.cli import _options, _reading
from tuneparts.cli._output import Form, terminal
from tuneparts.core import provenance, settings
from tuneparts.core.errors import AllFailedError, BusyError, ConfigError, InterruptedRunError
from tuneparts.core.redaction import redact
from tuneparts.executors.place import Place, fitted
from tuneparts.search import load, locks, runs, stopping
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.tracking import store

app = typer.Typer()
PATIENCE = 30.0
"""Seconds that a driver may take to answer."""


@app.command(epilog=_options.words("search", "arm", "seed", "scale", "step"))
def search(
    name: _options.Search,
    scale: _options.Scale = "cpu",
    address: _options.Address = None,
    local: _options.Local = False,
    ray: _options.Ray = False,
    cpus: _options.Cpus = None,
    trials: _options.Trials = None,
    seeds: _options.Seeds = None,
    arms: _options.Arms = None,
    changes: _options.Set = None,
    storage: _options.Storage = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the plan and its cost; run nothing.")
    ] = False,
    resume: _options.Resume = False,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Run a search and print the table that answers its question."""
    numbers, form = parse_seeds(seeds), Form.of(as_json=as_json, as_csv=as_csv)
    place = place_of(address, local=local, ray=ray, cpus=cpus)
    path, console = load.find(name), terminal(form)
    with console.status("reading the search file"):
        resolved = load.load(
            str(path),
            scale=scale,
            trials=trials,
            seeds=numbers,
            arms=None if arms is None else arms.split(","),
            changes=changes or [],
        )
        from tuneparts.results import running  # brings pandas, and a mistake is printed before
    console.print(f"{path.stem} at scale {scale}: {load.question(path)}")
    if dry_run:
        from tuneparts.cli import _estimate

        resolved = fitted(resolved, place)
        running.check(resolved)
        _estimate.print_plan(resolved, console, form)
        return
    refuse_temporary_results()
    with running.begun(resolved, place, console, storage=storage, resume=resume) as made:
        execute(made, place, console, form=form)


def place_of(address: str | None, *, local: bool, ray: bool, cpus: float | None) -> Place:
    """The place that the flags of a verb name."""
    if local and (ray or address):
        other = "--ray" if ray else "--address"
        raise ConfigError(f"--local: runs without Ray, but got `{other}` too. Leave one out.")
    return Place("local" if local else "ray" if ray else None, address, cpus)


def parse_seeds(text: str | None) -> list[int] | None:
    """`0,1,2` as numbers."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text}: no whole numbers. Write `--seeds 0,1,2`.") from None


def refuse_temporary_results() -> None:
    """Refuse to write into the copy of the code that Ray makes for a job, and removes after it."""
    results, is_job = settings.current().results_dir, "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    if is_job and results.is_relative_to(Path.cwd()):
        raise ConfigError(
            f"{results}: Ray removes this results folder when the job ends. Name one that stays: "
            "`tuneparts submit --results PATH`, or TUNEPARTS_RESULTS on the cluster."
        )


def execute(
    made: runs.Run,
    place: Place,
    console: Console,
    *,
    retry_failed: bool = False,
    form: Form = Form.TABLE,
) -> None:
    """Run what is left of a run, and print what it found."""
    console.print(f"run {made.name}", soft_wrap=True)
    with console.status("reading what the run needs"):
        from tuneparts.results import running

    with _as_ctrl_c() as came:
        try:
            results = running.execute(
                made,
                place,
                retry_failed=retry_failed,
                console=console,
                show=lambda results: _reading.show(results, console),
            )
        except InterruptedRunError as error:
            console.print(str(error), soft_wrap=True)
            raise SystemExit(128 + (came[0] if came else signal.SIGINT)) from None
    console.print(where_to_look(made), soft_wrap=True)
    if form is not Form.TABLE:
        _reading.write(results, form)
    trials = results.trials
    if len(trials) and (trials["outcome"] == "failed").all():
        first, name = trials.iloc[0], results.run.name
        raise AllFailedError(
            f"{name}: {len(trials)} of {len(trials)} trials failed; {first['trial']}: "
            f"{first['error']} Logs and tracebacks are in the run's folder; `tuneparts resume "
            f"{name} --retry-failed` tries again."
        )


@contextmanager
def _as_ctrl_c() -> Iterator[list[int]]:
    """Let the first SIGTERM or SIGHUP interrupt the block; yields the list of those that came."""
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, signal.SIG_IGN)
        if number == signal.SIGHUP:  # what is printed to a terminal that is gone is an error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in filter(os.isatty, (1, 2)):
                os.dup2(nowhere, stream)
            os.close(nowhere)
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def where_to_look(run: runs.Run) -> str:
    """Where MLflow shows a run: its experiment on a server, else the verb that serves it."""
    from tuneparts.tracking import card, record

    uri = settings.current().tracking_uri
    if not store.is_server(uri):
        return "MLflow UI   tuneparts ui --open"
    known = record.load(run.folder)
    link = card.run_link(known.experiment, "") if known and known.experiment else ""
    return f"MLflow      {redact(uri).rstrip('/')}/{link}".rstrip("/")


@app.command()
def resume(
    run: _options.Run = None,
    address: _options.Address = None,
    local: _options.Local = False,
    ray: _options.Ray = False,
    retry_failed: _options.Retry = False,
    cpus: _options.Cpus = None,
) -> None:
    """Continue a run that was interrupted; by default the newest."""
    refuse_temporary_results()
    found = runs.named(settings.current().results_dir, run, begun=True)
    place = place_of(address, local=local, ray=ray, cpus=cpus)
    began_at, console = found.card.get("address"), terminal()
    if began_at is not None and place.executor is None:
        said = f"{found.name} ran on the Ray cluster at {began_at}."
        if not (sys.stdin.isatty() and typer.confirm(f"{said} Continue it on this machine?")):
            here = "`--local` or `--ray` for this machine"
            raise ConfigError(f"{said} Add `--address {began_at}` to continue it there, or {here}.")
    console.print(found.card["search"].get("question", ""))
    execute(found, place, console, retry_failed=retry_failed)


@app.command(epilog=_options.words("arm", "seed"))
def extend(
    run: _options.NeededRun,
    trials: Annotated[
        str | None,
        typer.Option(help="Trials of each searching arm in all, or of some: random=128,gp=64."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="More seeds of every arm, as in 5,6,7.")] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="New arms of the search file, as in gp,tpe, with their source arms."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(help="The search file of the new arms; that of the run when not given."),
    ] = None,
    address: _options.Address = None,
    local: _options.Local = False,
    ray: _options.Ray = False,
    cpus: _options.Cpus = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would be new; run nothing.")] = False,
    until_decided: Annotated[
        str | None,
        typer.Option(help="Add seeds of two arms until a:b is decided.", metavar="A:B"),
    ] = None,
    within: Annotated[
        float | None, typer.Option(help="With it: margin within which the two count as equivalent.")
    ] = None,
    at_most: Annotated[int, typer.Option(min=3, help="With it: seeds in all.")] = 20,
    metric: Annotated[str, typer.Option(help="With it: what is compared.")] = "test/accuracy",
) -> None:
    """Add trials, seeds and arms to a run, and run only what is new.

    The table is then that of one search of the final size. What would change trials that have run
    is refused. An interrupted extension goes on with `tuneparts resume`. `--until-decided` adds
    seeds of two arms one by one, and stops by an interval that holds however often one looks, or
    after `--at-most`.
    """
    if until_decided is not None and (trials or seeds or arms or search or dry_run):
        raise ConfigError(
            "--until-decided: adds seeds of two arms and nothing else, but got more. Extend the "
            "run twice."
        )
    pair = None if until_decided is None else _reading.parse_pair(until_decided)
    numbers, added = parse_trials(trials), parse_seeds(seeds) or ()
    from tuneparts.results import running

    place, console = place_of(address, local=local, ray=ray, cpus=cpus), terminal()
    refuse_temporary_results()
    found = runs.named(settings.current().results_dir, run)
    where = place.settled(found.search)
    if pair is None:
        names = [] if arms is None else arms.split(",")
        more: dict[str, Any] = {"trials": numbers, "seeds": added}
        found, news = running.grow(found, where, arms=names, search=search, dry_run=dry_run, **more)
        console.print("\n".join(news or ["nothing is new"]), soft_wrap=True)
        if not dry_run:
            execute(found, place, console)
        return
    one, other = pair
    for step in running.until_decided(
        found, pair, where, metric=metric, within=within, at_most=at_most
    ):
        span = step.interval
        bounds = f"always-valid 95 % interval {span.low:+.4f} to {span.high:+.4f}"
        said = f"{step.num} seeds: {metric} of {one} - {other} {step.mean:+.4f}, "
        said += bounds if math.isfinite(span.low) else "no interval yet"
        console.print(said, soft_wrap=True)
    words = {
        "": f"{one} compared with {other} is inconclusive with {step.num} seeds",
        "equivalent": f"{one} and {other} are equivalent within {within}",
    }
    console.print(words.get(step.verdict, f"{one} is {step.verdict} than {other}"))


def parse_trials(text: str | None) -> int | dict[str, int] | None:
    """Read a number of trials, or numbers by arm."""
    try:
        if text is None or "=" not in text:
            return None if text is None else int(text)
        pairs = [one.partition("=") for one in text.split(",")]
        return {arm: int(count) for arm, _, count in pairs}
    except ValueError:
        raise ConfigError(f"`{text}`: trials read `128`, or `random=128,gp=64` by arm.") from None


@app.command()
def stop(run: _options.NeededRun) -> None:
    """Stop a run for good from another terminal, wherever it runs.

    What has finished counts, what runs ends as stopped, and what had not started is counted as
    such. The run's folder must be seen from here. Ctrl-C, in contrast, interrupts a run, which
    then can be resumed.
    """
    found = runs.named(settings.current().results_dir, run)
    message = f"asked for by {redact(provenance.user()) or 'somebody'}"
    console = terminal()
    try:
        journal = found.folder / "journal.jsonl"
        with locks.lock(found.folder), closing(Journal(journal)) as opened:
            with found.code.importable():
                plan, before = Plan(found.search, opened), len(opened.events)
                plan.stop(message)
            is_news = len(opened.events) > before
        said = "is stopped" if is_news else "has nothing left to stop"
        said += f"; no driver was running it. Its report: tuneparts resume {found.name}"
        console.print(f"{found.name} {said}", soft_wrap=True)
        return
    except BusyError:
        file = stopping.request(found.folder, message)
    with console.status("asking the driver"):
        end = time.monotonic() + PATIENCE
        while file.exists() and time.monotonic() < end:
            time.sleep(0.1)
    if file.exists():
        console.print(f"asked for, but the driver has not answered for {PATIENCE:g} s", style="red")
        raise SystemExit(1)
    console.print(f"{found.name} is stopped", soft_wrap=True)


@app.command()
def sync(run: _options.Run = None) -> None:
    """Send to MLflow what it lacks of a run; by default the newest.

    A search needs no MLflow to run: what its server missed lies in the run's folder. This replays
    the journal, with the report, the description and the tags, into the store that
    TUNEPARTS_TRACKING_URI names. It is also how a run is copied to another store. What is there
    already stays as it is, so running it twice changes nothing.
    """
    from rich.progress import Progress

    from tuneparts.results.running import log_reader, tracking_card
    from tuneparts.tracking import tracker

    found = runs.named(settings.current().results_dir, run)
    uri, console = settings.current().tracking_uri, terminal()
    journal = found.folder / "journal.jsonl"
    size = journal.stat().st_size if journal.exists() else 0
    card = tracking_card(found)
    with locks.lock(found.folder), Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"sending {found.name}", total=size or None)
        done = tracker.sync(
            found.folder,
            uri,
            card,
            on_progress=lambda sent: bar.update(task, completed=sent),
            read_log=log_reader(found),
        )
    for problem in done.problems:
        console.print(f"tracking: {problem}", style="yellow")
    if not done.is_complete:
        raise SystemExit(1)
    said = f"{redact(uri)} already has every point of {found.name}"
    if done.runs or done.points:
        said = f"sent {done.runs} MLflow runs and {done.points} points of {found.name} to "
        said += redact(uri)
    console.print(said)
