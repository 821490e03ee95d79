"""Add trials, seeds and arms to a run, and run what is new."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tuneparts import executors
from tuneparts.core import settings
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.executors.place import Executor, Place
from tuneparts.results.metadata import UNTIL_DECIDED
from tuneparts.results.results import Results
from tuneparts.results.running import check, execute, origin, place_of
from tuneparts.search import code, runs
from tuneparts.search import load as search_files

if TYPE_CHECKING:  # brings torch
    from tuneparts.results.compare import Decision
    from tuneparts.search.spec import Arm


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
        ConfigError: It would change what the run already has; nothing is written.
        InterruptedRunError: Ctrl-C; nothing is lost, and `resume` goes on.
    """
    run = runs.named(settings.current().results_dir, name)
    place = place_of(executor, address, workers, cpus)
    run, _ = grow(run, place, trials=trials, seeds=seeds, arms=arms, search=search)
    return execute(run, place, console=console)


def grow(
    run: runs.Run,
    place: Place,
    *,
    arms: "Sequence[str | Arm]" = (),
    search: str | Path | None = None,
    why: str = "",
    dry_run: bool = False,
    **more: Any,
) -> tuple[runs.Run, tuple[str, ...]]:
    """Write down what a run shall have besides what it has, unless `dry_run`; nothing runs yet.

    New arms will run at `place`. `arms` and `search` are those of
    `extend`, `more` arguments of `extended`, and `why` is kept beside what is new.

    Returns:
        The run as it is then, and a sentence for each thing that is new.
    """
    from tuneparts.executors.place import fitted
    from tuneparts.search.extension import check_journal, extended

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
            run = runs.extend(run, grown, [*news, *filter(None, [why])], **origin())
    return run, news


def until_decided(
    run: runs.Run,
    pair: tuple[str, str],
    place: Place,
    *,
    within: float | None = None,
    at_most: int = 20,
    metric: str = "test/accuracy",
) -> "Iterator[tuple[Results, Decision]]":
    """Add paired replicates of two arms until their difference is decided, or there are `at_most`.

    It is decided by a confidence sequence (`reports.compare`), which may be looked at after
    each replicate, and which assumes no more than normal differences: which arm is better, or that
    they are equivalent within a margin. Trials run at `place`.

    Yields:
        The results and what they allow to say, at first and after each replicate.
    """
    results, num = Results(run), -1
    while True:
        decision = results.decide(pair, within=within, metric=metric)
        if decision.num <= num:
            raise DataMissingError(
                f"{pair[0]}:{pair[1]}: the replicate that was added has not finished in both arms. "
                f"See `tuneparts report {run.name}`."
            )
        yield results, decision
        if decision.verdict or decision.num >= at_most:
            return
        num = decision.num
        taken = [seed for arm in run.search.arms for seed in run.search.seeds_of(arm)]
        why = f"{UNTIL_DECIDED} {pair[0]}:{pair[1]}"
        why += "" if within is None else f" within {within:g}"
        run, _ = grow(run, place, seeds=[max(taken) + 1], only=pair, why=why)
        results = execute(run, place)
