"""An arm that trains one trial a seed at what the selected trial of its source arm found."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tuneparts.core.errors import ConfigError
from tuneparts.search.algorithms.base import Proposals, whole_trial
from tuneparts.search.arm import Arm, at
from tuneparts.search.events import Event, TrialEnded, TrialId, TrialStarted, TrialVoided
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Batch
from tuneparts.search.state import TrialRecord

_Trials: TypeAlias = Mapping[TrialId, TrialRecord]
_Record: TypeAlias = Callable[[Event], object]


def proposals(
    one: Replicate, source: Arm, found: TrialRecord | None, own: _Trials, record: _Record
) -> Proposals:
    """Propose one trial at what `found`, the selected trial of the source arm, has; if None, fail.

    `own` are the trials that the arm has already under this seed; `record` writes to the journal.
    """
    if found is None:
        config = one.arm.config.model_dump(mode="json")
        trial = _trial(one, source, own, config, record)
        record(TrialStarted(trial, config, time.time()))
        message = f"no trial of `{source.name}` finished, so there are no hyperparameters."
        record(TrialEnded(trial, "failed", time.time(), message))
        return
    whole = whole_trial(one.arm, seed=one.seed, index=0, values=_taken(one.arm, source, found))
    trial = _trial(one, source, own, whole.config, record)
    yield Batch((dataclasses.replace(whole, trial=trial),))


def _taken(arm: Arm, source: Arm, found: TrialRecord) -> dict[str, Any]:
    """What is taken from the selected trial of the source arm: path -> value."""
    if arm.config.config_from:
        return {path: at(found.config, path) for path in source.space}
    hypers = getattr(arm.config, "hypers", None)
    if hypers is None:
        raise ConfigError(f"arms['{arm.name}'].hypers_from: its method has no hyperparameters.")
    assert found.last is not None
    values = {
        name.removeprefix("hyper/"): value
        for name, value in found.last.metrics.items()
        if name.startswith("hyper/")
    }
    joined = hypers.joined(getattr(source.config, "hypers", hypers))
    return {"hypers": joined.at(values).model_dump()}


def _trial(
    one: Replicate, source: Arm, own: _Trials, config: Mapping[str, Any], record: _Record
) -> TrialId:
    """The trial of the arm that has this config: one that is there, or the next one.

    A source arm that got more trials may select another one now; the arm then trains again.
    """
    for trial, known in (ordered := sorted(own.items())):
        is_void = known.end is not None and known.end.outcome == "stopped"
        has_nothing = known.end is None and not known.rows
        if has_nothing or (not is_void and known.config == config):
            return trial
        message = f"`{source.name}` has more trials now, and another one of them is selected."
        record(TrialVoided(trial, time.time(), message))
    return TrialId(one.arm.name, one.seed, ordered[-1][0].index + 1 if ordered else 0)
