"""Arms that follow another: one trial at the hypers that the leader's selected trial found."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from tuneparts.core.errors import ConfigError
from tuneparts.search.algorithms import Proposals, whole_trial
from tuneparts.search.draws import at
from tuneparts.search.journal import Journal, TrialId, TrialStarted, TrialVoided
from tuneparts.search.ledger import Ledger
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Batch
from tuneparts.search.spec import Search


def selected(search: Search, journal: Journal, arm: str, seed: int) -> TrialId | None:
    """The trial of a replicate that selection chooses, among those that finished."""
    finished = {
        trial.index: record.last.metrics
        for trial, record in journal.trials.items()
        if (trial.arm, trial.seed) == (arm, seed)
        and record.end is not None
        and record.end.outcome == "finished"
        and record.last is not None
    }
    index = search.selection.choose(finished, search.all_objectives)
    return None if index is None else TrialId(arm, seed, index)


def follow(replicate: Replicate, leader: str, search: Search, ledger: Ledger) -> Proposals:
    """Propose one trial at what the leader's selected trial has; none if it has none."""
    found = selected(search, ledger.journal, leader, replicate.seed)
    if found is None:
        config = replicate.arm.config.model_dump(mode="json")
        trial = _trial_of(replicate, config, leader, ledger)
        ledger.record(TrialStarted(trial, config, time.time()))
        message = f"no trial of `{leader}` finished, so there is no hyper."
        ledger.end(trial, "failed", message)
        return
    values = _adopted(replicate, leader, found, search, ledger.journal)
    whole = whole_trial(replicate.arm, seed=replicate.seed, index=0, values=values)
    trial = _trial_of(replicate, whole.config, leader, ledger)
    yield Batch((dataclasses.replace(whole, trial=trial),))


def _adopted(
    replicate: Replicate, leader: str, found: TrialId, search: Search, journal: Journal
) -> dict[str, Any]:
    """What a follower takes over from the leader's selected trial: path -> value."""
    if replicate.arm.adopts == "config":
        config = journal.trials[found].config
        return {path: at(config, path) for path in search.arm(leader).space}
    last = journal.trials[found].last
    assert last is not None
    hypers = getattr(replicate.arm.config, "hypers", None)
    if hypers is None:
        raise ConfigError(
            f"an arm that follows another takes over its hypers, but the method of "
            f"`{replicate.arm.name}` has none."
        )
    values = {
        name.removeprefix("hyper/"): value
        for name, value in last.metrics.items()
        if name.startswith("hyper/")
    }
    led = getattr(search.arm(leader).config, "hypers", hypers)
    return {"hypers": hypers.joined(led).at(values).model_dump()}


def _trial_of(
    replicate: Replicate, config: Mapping[str, Any], leader: str, ledger: Ledger
) -> TrialId:
    """The trial of a follower that has this config: one that is there, or the next one.

    A leader that got more trials may have selected another one since. What the follower trained
    at the former one no longer counts, and it trains again.
    """
    own = sorted(t for t in ledger.journal.trials if replicate.owns(t))
    for trial in own:
        record = ledger.journal.trials[trial]
        is_void = record.end is not None and record.end.outcome == "stopped"
        has_nothing = record.end is None and not record.rows
        if has_nothing or (not is_void and record.config == config):
            return trial
        message = f"`{leader}` has more trials now, and another one of them is selected."
        ledger.record(TrialVoided(trial, time.time(), message))
        replicate.states.add(trial, record)
    return TrialId(replicate.arm.name, replicate.seed, own[-1].index + 1 if own else 0)
