"""Add trials, seeds and arms to a run, and run what is new."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tuneparts import executors, settings
from tuneparts.api.results import Results
from tuneparts.api.running import Executor, check, execute, fitted, origin
from tuneparts.errors import ConfigError, DataMissingError
from tuneparts.reports.metadata import UNTIL_DECIDED
from tuneparts.search import code, runs
from tuneparts.search import load as search_files

if TYPE_CHECKING:  # brings torch
    from tuneparts.reports.always_valid import Decision
    from tuneparts.search.extension import Extension
    from tuneparts.search.spec import Arm, Search


def extend(
    name: str | None = None,
    *,
    trials: int | Mapping[str, int] | None = None,
    seeds: Sequence[int] = (),
    arms: "Sequence[str | Arm]" = (),
    search: str | Path | None = None,
    executor: Executor = "local",
    address: str | None = None,
    workers: int | None = None,
    cpus: float | None = None,
    console: Console | None = None,
) -> Results:
    """Add to a run, and run what is new; the table is that of one search of the final size.

    Args:
        name: As of `resume`.
        trials: How many trials each searching arm has in all, or those of some arms by name.
        seeds: Replicates that every arm gets besides those it has.
        arms: New ones: objects, or names in the search file, with the arms that they follow. They
            learn from the run's data, and are selected by its metric.
        search: The search file of the new arms, a name or a path; that of the run when None.
        executor: As of `run`.
        address: As of `run`.
        workers: As of `run`.
        cpus: As of `run`.
        console: As of `run`.

    Raises:
        ConfigError: It would change what the run already has, with the cure; nothing is written.
        InterruptedRunError: Ctrl-C; nothing is lost, and `resume` goes on.
    """
    run = runs.named(settings.current().results_dir, name)
    place = {"executor": executor, "address": address, "workers": workers, "cpus": cpus}
    made, _ = grow(run, trials=trials, seeds=seeds, arms=arms, search=search, place=place)
    return execute(
        made, executor=executor, address=address, workers=workers, cpus=cpus, console=console
    )


def grow(
    run: runs.Run,
    *,
    trials: int | Mapping[str, int] | None,
    seeds: Sequence[int],
    arms: "Sequence[str | Arm]",
    search: str | Path | None,
    only: Sequence[str] = (),
    why: str = "",
    place: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> "tuple[runs.Run, Extension]":
    """Write down what a run shall have besides what it has; nothing runs yet.

    Args:
        run: As it is.
        trials: As of `extend`.
        seeds: As of `extend`.
        arms: As of `extend`.
        search: As of `extend`.
        only: Arms that get the seeds; all when empty.
        why: What is written down beside what is new.
        place: Where new arms will run: arguments of `running.fitted`.
        dry_run: Write nothing.

    Returns:
        The run as it is then, and what is new in it.
    """
    from tuneparts.search.extension import extended, refuse_changed_trials, refuse_stopped

    with executors.lock(run.folder):
        run = runs.Run(run.root, run.name)  # as it is now that nobody else can change it
        refuse_stopped(run.name, run.folder / "journal.jsonl")
        old = run.search
        fresh = _arms(old, arms, search)
        kept, journal = run.folder / "code", run.folder / "journal.jsonl"
        if not dry_run:
            code.add(fresh, kept)
        with code.Code.of(kept).importable():
            extension = extended(old, trials=trials, seeds=seeds, arms=fresh, only=only)
            # What old arms propose depends on the width that the run began with.
            wide = fitted(extension.search, **(place or {"executor": "local"}))
            extension = dataclasses.replace(extension, search=wide)
            check(extension.search)
            refuse_changed_trials(extension.search, journal)
        if extension.news and not dry_run:
            news = [*extension.news, *([why] if why else [])]
            run = runs.extend(run, extension.search, news, **origin())
    return run, extension


def until_decided(
    name: str | None,
    pair: tuple[str, str],
    *,
    within: float | None = None,
    at_most: int = 20,
    metric: str = "test/accuracy",
    executor: Executor = "local",
    address: str | None = None,
    workers: int | None = None,
    cpus: float | None = None,
    console: Console | None = None,
) -> "Iterator[tuple[Results, Decision]]":
    """Add paired replicates of two arms until their difference is decided.

    It is decided by a confidence sequence (`reports.always_valid`), which may be looked at after
    each replicate, and which assumes no more than normal differences.

    Args:
        name: As of `resume`.
        pair: Two arms of the run.
        within: Margin within which they count as equivalent; None for whichever is better only.
        at_most: Replicates in all after which it stops undecided.
        metric: By which they are compared.
        executor: As of `run`.
        address: As of `run`.
        workers: As of `run`.
        cpus: As of `run`.
        console: As of `run`.

    Yields:
        The results so far and what they allow to say, before anything is added and after each
        replicate.
    """
    run = runs.named(settings.current().results_dir, name)
    place = {"executor": executor, "address": address, "workers": workers, "cpus": cpus}
    results = Results(run)
    while True:
        decision = results.decide(pair, within=within, metric=metric)
        yield results, decision
        if decision.verdict or decision.num >= at_most:
            return
        taken = [seed for arm in run.search.arms for seed in run.search.seeds_of(arm)]
        margin = "" if within is None else f" within {within:g}"
        made = grow(
            run,
            trials=None,
            seeds=[max(taken) + 1],
            arms=[],
            search=None,
            only=pair,
            why=f"{UNTIL_DECIDED} {pair[0]}:{pair[1]}{margin}",
            place=place,
        )[0]
        results = execute(
            made, executor=executor, address=address, workers=workers, cpus=cpus, console=console
        )
        if results.decide(pair, within=within, metric=metric).num <= decision.num:
            raise DataMissingError(
                f"a replicate is added when both arms finish it, but seed {max(taken) + 1} of "
                f"{pair[0]} or {pair[1]} failed. See `tuneparts report {run.name}`."
            )
        run = made


def _arms(old: "Search", arms: "Sequence[str | Arm]", search: str | Path | None) -> "list[Arm]":
    """The arms that are asked for, with those that they follow; data and metric are the run's."""
    names = [arm for arm in arms if isinstance(arm, str)]
    given = [arm for arm in arms if not isinstance(arm, str)]
    if not names:
        if search is not None:
            raise ConfigError(
                f"a search file gives new arms to a run, but none of `{search}` was named. Add "
                "`--arms NAME`."
            )
        return given
    file = search_files.load(str(search or old.name), scale=str(old.scale), arms=names)
    return [*file.arms, *given]
