"""Add trials, seeds and arms to a run, and run what is new."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tuneparts import executors, settings
from tuneparts.api.results import Results
from tuneparts.api.running import Executor, check, execute, fitted, origin
from tuneparts.errors import ConfigError
from tuneparts.search import code, runs
from tuneparts.search import load as search_files

if TYPE_CHECKING:  # brings torch
    from tuneparts.search.extension import Extension
    from tuneparts.search.spec import Arm, Search


def extend(
    name: str | None = None,
    *,
    trials: int | Mapping[str, int] | None = None,
    seeds: Sequence[int] = (),
    arms: "Sequence[str | Arm]" = (),
    search: str | Path | None = None,
    lift_stop: bool = False,
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
        lift_stop: Let go on what a limit or `tuneparts stop` has stopped, and drop all limits.
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
    made, extension = grow(
        run,
        trials=trials,
        seeds=seeds,
        arms=arms,
        search=search,
        lift_stop=lift_stop,
        place=place,
    )
    for note in extension.notes:
        (console or Console()).print(note, highlight=False, soft_wrap=True)
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
    lift_stop: bool = False,
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
        lift_stop: As of `extend`.
        place: Where new arms will run: arguments of `running.fitted`.
        dry_run: Write nothing.

    Returns:
        The run as it is then, and what is new in it.
    """
    from tuneparts.search.extension import (
        extended,
        lift_stops,
        refuse_changed_trials,
        stopped_notes,
    )

    with executors.lock(run.folder):
        run = runs.Run(run.root, run.name)  # as it is now that nobody else can change it
        old = run.search
        fresh = _arms(old, arms, search)
        kept, journal = run.folder / "code", run.folder / "journal.jsonl"
        if not dry_run:
            code.add(fresh, kept)
        with code.Code.of(kept).importable():
            extension = extended(
                old, trials=trials, seeds=seeds, arms=fresh, has_limits=not lift_stop
            )
            # What old arms propose depends on the width that the run began with.
            wide = fitted(extension.search, **(place or {"executor": "local"}))
            extension = dataclasses.replace(extension, search=wide)
            check(extension.search)
            refuse_changed_trials(extension.search, journal)
        if lift_stop:  # said first and done last: whoever is interrupted here can ask again
            lifted = lift_stops(journal, dry_run=True)
            extension = dataclasses.replace(extension, news=(*extension.news, *lifted))
        else:
            extension = dataclasses.replace(extension, notes=stopped_notes(journal))
        if extension.news and not dry_run:
            run = runs.extend(run, extension.search, extension.news, **origin())
            if lift_stop:
                lift_stops(journal)
    return run, extension


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
