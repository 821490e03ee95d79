"""Searches that grow: more trials, seeds and arms for a run that is there.

What a run has stays as it is, and only what is new runs. So an extension may add and never change:
the table is then that of one search of the final size. Whether more trials leave the first ones
alone is up to the algorithm (`Algorithm.keeps_first_trials`).
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneparts.config import parse
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.journal import Event, Journal, TrialId, TrialStarted, stops
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Arm, Search


@dataclass(frozen=True)
class Extension:
    """A search that has grown, and what is new in it."""

    search: Search
    news: tuple[str, ...]
    """One sentence for each thing that was added; empty if there is nothing."""


def extended(
    search: Search,
    *,
    trials: int | Mapping[str, int] | None = None,
    seeds: Sequence[int] = (),
    arms: Sequence[Arm] = (),
    only: Sequence[str] = (),
) -> Extension:
    """Add to a search; whatever would change what it already has is refused.

    Args:
        search: as it was.
        trials: how many trials each searching arm has in all, or those of some arms by name.
        seeds: replicates that every arm gets besides those it has.
        arms: to be added; one that the search has already is left out.
        only: arms that get the seeds, with those they follow; all when empty.

    Raises:
        ConfigError: It would change trials that have run, with the cure.

    Example:
        >>> from tuneparts.search import load
        >>> small = load.load("rotated_digits", scale="smoke", arms=["random"], trials=4)
        >>> extended(small, trials=8, seeds=[7]).news
        ('random has 8 trials a seed instead of 4', 'seed 7 is new')
    """
    before = {arm.name: arm for arm in search.arms}
    fresh = [arm for arm in arms if not _is_there(before, arm)]
    counts = _counts([*search.arms, *fresh], trials)
    _refuse_smaller_or_changed(before, counts)
    added = [seed for seed in dict.fromkeys(seeds) if seed not in search.seeds]
    tree = search.model_dump(mode="json")
    growing = _with_leaders(search, only)
    if growing is None:
        tree["seeds"] = [*search.seeds, *added]
    tree["arms"] = [
        _grown(arm, counts[arm.name], dict.fromkeys(seeds)).model_dump(mode="json")
        if growing is None
        else _reseeded(search, arm, seeds if arm.name in growing else ()).model_dump(mode="json")
        for arm in [*search.arms, *fresh]
    ]
    grown = parse(Search, tree)
    return Extension(grown, tuple(_news(before, grown, added if growing is None else [])))


def refuse_stopped(run: str, journal: Path) -> None:
    """Refuse to add to a run that was stopped as a whole.

    Raises:
        ConfigError: With what stopped it.
    """
    for stop in stops(journal).values():
        if stop.is_all:
            raise ConfigError(
                f"{run} was stopped ({stop.message}), and a stopped run stays as it is. Start a "
                "new run."
            )


def _with_leaders(search: Search, only: Sequence[str]) -> set[str] | None:
    """The named arms and those that they follow; None for all."""
    if not only:
        return None
    found = set()
    for name in only:
        leader: str | None = name
        while leader is not None:
            found.add(leader)
            leader = search.arm(leader).follows
    return found


def _reseeded(search: Search, arm: Arm, seeds: Sequence[int]) -> Arm:
    """An arm that has seeds of its own besides those it had."""
    own = search.seeds_of(arm)
    return arm.model_copy(update={"seeds": tuple(dict.fromkeys([*own, *seeds]))}) if seeds else arm


def refuse_changed_trials(search: Search, journal: Path) -> None:
    """Refuse a search under which a trial of the journal would have had another config.

    Args:
        search: as it has grown.
        journal: the file `journal.jsonl` of its run, which is left as it is.

    Raises:
        ConfigError: With the first such trial.
    """
    if not journal.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Journal(Path(shutil.copy(journal, folder)))
        try:
            watch = _Restarts(set(copy.trials))
            copy.events.clear()  # only what is new matters
            Plan(search, copy, [watch])
        finally:
            copy.close()
    if watch.found:
        raise ConfigError(
            f"an extension leaves the trials of a run as they are, but {watch.found[0]} would have "
            "had another config: the algorithm of its arm draws others when there are more. Add "
            "seeds or arms, or start a new run."
        )


class _Restarts:
    """Observes a plan: which trials of the run would start anew?"""

    def __init__(self, known: set[TrialId]) -> None:
        self.known = known
        self.found: list[TrialId] = []

    def on_event(self, event: Event) -> None:
        # Later starts may be those of a round that an interrupted run had not come to.
        if isinstance(event, TrialStarted) and event.trial in self.known and not event.passes:
            self.found.append(event.trial)


def _is_there(before: Mapping[str, Arm], arm: Arm) -> bool:
    """Whether the search has an arm already; another one of the same name is refused."""
    own = before.get(arm.name)
    if own is None:
        return False
    same = ("config", "space", "follows", "resources", "varies", "fresh_seed", "adopts")
    if any(getattr(own, name) != getattr(arm, name) for name in same) or (
        own.algorithm.kind != arm.algorithm.kind
    ):
        raise ConfigError(
            f"an extension leaves the arms of a run as they are, but `{arm.name}` is another one "
            "there. Give the new arm another name, or start a new run."
        )
    return True


def _counts(arms: Sequence[Arm], trials: int | Mapping[str, int] | None) -> dict[str, int | None]:
    """Arm -> how many trials a seed it shall have; None for as many as it has."""
    names = [arm.name for arm in arms]
    if trials is None or isinstance(trials, int):
        return dict.fromkeys(names, trials)
    for name in trials:
        if name not in names:
            raise UnknownNameError("arm", name, names)
    for arm in arms:
        count = trials.get(arm.name)
        if (
            count is not None
            and arm.algorithm.with_trials(count).trials_per_seed(arm.space) != count
        ):
            raise ConfigError(
                f"`{arm.algorithm.kind}` runs as many trials as its settings say, so `{arm.name}` "
                f"cannot have {count}. Leave it out."
            )
    return {name: trials.get(name) for name in names}


def _refuse_smaller_or_changed(before: Mapping[str, Arm], counts: Mapping[str, int | None]) -> None:
    can_grow = [arm.name for arm in before.values() if arm.algorithm.keeps_first_trials]
    for name, arm in before.items():
        count = counts[name]
        if count is None or arm.algorithm.with_trials(count) == arm.algorithm:
            continue
        if count < arm.trials_per_seed:
            raise ConfigError(
                f"an extension adds trials, but `{name}` has {arm.trials_per_seed} and shall have "
                f"{count}. Name a larger number."
            )
        if not arm.algorithm.keeps_first_trials:
            cure = f"`--trials {','.join(f'{n}={count}' for n in can_grow)}`, or " * bool(can_grow)
            raise ConfigError(
                f"an extension leaves the trials of a run as they are, but with {count} trials "
                f"`{arm.algorithm.kind}` would have treated the first {arm.trials_per_seed} of "
                f"`{name}` in another way. Use {cure}`--seeds`, or start a new run."
            )


def _grown(arm: Arm, count: int | None, seeds: Mapping[int, None]) -> Arm:
    algorithm = arm.algorithm if count is None else arm.algorithm.with_trials(count)
    own = arm.seeds if arm.seeds is None else tuple(dict.fromkeys([*arm.seeds, *seeds]))
    return arm.model_copy(update={"algorithm": algorithm, "seeds": own})


def _news(before: Mapping[str, Arm], grown: Search, added: Sequence[int]) -> list[str]:
    news = []
    for arm in grown.arms:
        count, own = arm.trials_per_seed, before.get(arm.name)
        if own is None:
            trials = "1 trial" if count == 1 else f"{count} trials"
            news.append(f"arm {arm.name} is new, with {trials} a seed")
        elif own.trials_per_seed != count:
            news.append(f"{arm.name} has {count} trials a seed instead of {own.trials_per_seed}")
        if own is not None and own.seeds != arm.seeds:
            had = grown.seeds if own.seeds is None else own.seeds
            more = [str(seed) for seed in arm.seeds or () if seed not in had]
            news.append(f"{arm.name} has more seeds of its own: {', '.join(more)}")
    if added:
        words = (
            f"seeds {', '.join(map(str, added))} are" if len(added) > 1 else f"seed {added[0]} is"
        )
        news.append(f"{words} new")
    return news
