"""Runs that are changed: more trials, seeds and arms, and a second try for trials that failed.

An extension adds and never changes, so the table is that of one search of the final size.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.search.algorithms.base import Algorithm
from tuneparts.search.arm import Arm
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId, TrialRetried, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder

_SAME = ("config", "space", "source", "resources", "fresh_seed")
"""What an arm that is named again must share with the one that the run has."""


def extended(
    search: Search,
    *,
    trials: int | Mapping[str, int] | None = None,
    seeds: Sequence[int] = (),
    arms: Sequence[Arm] = (),
    only: Sequence[str] = (),
) -> tuple[Search, tuple[str, ...]]:
    """Add to a search; returns it, and a sentence for each thing that is new.

    `trials` is how many trials each searching arm has in all, or those of some arms by name. Every
    arm gets `seeds`, or the arms in `only` with their source arms. What would change trials that
    the search has is refused.
    """
    before = {arm.name: arm for arm in search.arms}
    for arm in arms:
        own, kind = before.get(arm.name, arm), arm.algorithm.kind
        if own.algorithm.kind != kind or any(getattr(own, x) != getattr(arm, x) for x in _SAME):
            raise ConfigError(f"`{arm.name}` is another arm in the run. Choose another name.")
    every = before | {arm.name: arm for arm in arms if arm.name not in before}
    for name in trials if isinstance(trials, Mapping) else ():
        if name not in every:
            raise UnknownNameError("arm", name, every)
    growing = set(only)
    for arm in reversed(search.arms):  # a source arm stands before those that take from it
        growing |= {arm.source} if arm.name in growing and arm.source else set()
    grown = []
    for name, arm in every.items():
        had = search.seeds_of(arm) if name in growing else arm.seeds
        if had is not None and (name in growing or not only):
            had = tuple(dict.fromkeys([*had, *seeds]))
        algorithm = _resized(arm, trials, is_new=name not in before)
        grown.append(arm.model_copy(update={"algorithm": algorithm, "seeds": had}))
    added = [] if only else [seed for seed in dict.fromkeys(seeds) if seed not in search.seeds]
    made = search.model_copy(update={"arms": tuple(grown), "seeds": (*search.seeds, *added)})
    made = parse(Search, made.model_dump(mode="json"))
    return made, tuple(_news(before, made, added))


def check_journal(search: Search, journal: Path) -> None:
    """Refuse a grown search if its run was stopped, or its trials would have had other configs."""
    if not journal.exists():
        return
    with TemporaryDirectory() as tmp, closing(Journal(Path(shutil.copy(journal, tmp)))) as copy:
        whole = [stop.message for stop in copy.stops.values() if stop.is_all]
        if whole:
            raise ConfigError(f"the run was stopped ({whole[0]}) and stays so. Start a new run.")
        known, count = set(copy.trials), len(copy.events)
        Plan(search, copy)
    for event in copy.events[count:]:
        # Later starts may be those of a round that an interrupted run had not come to.
        if isinstance(event, TrialStarted) and event.trial in known and not event.steps:
            raise ConfigError(
                f"{event.trial} would have had another config: the algorithm of its arm draws "
                "others when there are more. Add seeds or arms, or start a new run."
            )


@dataclass(frozen=True)
class _Retry:
    """What became of the failed trials of a run."""

    retried: tuple[TrialId, ...]
    """They will run again, from their last checkpoint."""
    decided: tuple[TrialId, ...]
    """The search has already gone on from their failure, so they stay as they are."""


def retry_failed(search: Search, journal: Path, storage: str) -> _Retry:
    """Void the ends of failed trials, so that they run again; the caller holds the run's lock."""
    with closing(Journal(journal)) as opened:
        plan = Plan(search, opened)
        ends = {trial: record.end for trial, record in opened.trials.items()}
        failed = [t for t, end in ends.items() if end is not None and end.outcome == "failed"]
        retried = tuple(trial for trial in failed if not _has_used(plan, trial))
        for trial in retried:
            CheckpointStore(Folder(storage)).remove(trial, only_hangs=True)
            opened.append(TrialRetried(trial, time.time()))
    return _Retry(retried, tuple(trial for trial in failed if trial not in retried))


def _has_used(plan: Plan, trial: TrialId) -> bool:
    """Whether an adaptive algorithm, or an arm with this source, has gone on from a trial's end."""
    replicate = plan.replicates[trial.arm, trial.seed]
    if replicate.arm.algorithm.is_adaptive and trial in replicate.used:
        return True
    return any(
        record.rows
        for arm in plan.search.arms
        if arm.source == trial.arm
        for record in plan.journal.state.replicate(arm.name, trial.seed).values()
    )


def _resized(arm: Arm, trials: int | Mapping[str, int] | None, *, is_new: bool) -> Algorithm:
    own = arm.algorithm
    count = trials.get(arm.name) if isinstance(trials, Mapping) else trials
    if count is None:
        return own
    resized, had = own.with_trials(count), arm.trials_per_seed
    if isinstance(trials, Mapping) and resized.trials_per_seed(arm.space) != count:
        why = f"`{own.kind}` runs as many as its settings say"
    elif is_new or resized == own or (own.keeps_first_trials and count >= had):
        return resized
    else:
        other_way = f"`{own.kind}` would have treated the first {had} in another way"
        why = f"it has {had} already" if count < had else other_way
    raise ConfigError(
        f"`{arm.name}` shall have {count} trials, but {why}. Name arms that can have more "
        f"(`--trials ARM={count}`), add seeds, or start a new run."
    )


def _news(before: Mapping[str, Arm], grown: Search, added: Sequence[int]) -> list[str]:
    news = []
    for arm in grown.arms:
        count, own = arm.trials_per_seed, before.get(arm.name)
        if own is None:
            trials = "trial" if count == 1 else "trials"
            news.append(f"arm {arm.name} is new, with {count} {trials} a seed")
        elif own.trials_per_seed != count:
            news.append(f"{arm.name} has {count} trials a seed instead of {own.trials_per_seed}")
        if own is not None and own.seeds != arm.seeds:
            had = grown.seeds if own.seeds is None else own.seeds
            more = [str(seed) for seed in arm.seeds or () if seed not in had]
            news.append(f"{arm.name} has more seeds: {', '.join(more)}")
    if added:
        words = ", ".join(map(str, added))
        news.append(f"seeds {words} are new" if len(added) > 1 else f"seed {words} is new")
    return news
