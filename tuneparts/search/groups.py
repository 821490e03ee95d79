"""Groups of segments that one worker trains: packs of several trials, or mostly a single one.

A pack computes as many slots as its arm says, and a trial has the slot `index % packed`. Its
numbers depend on both, not on the other slots. So which segments wait together changes no number,
also after a crash. Only a trial whose pack failed goes on by itself, with other rounding.
"""

import json
from collections.abc import Container
from dataclasses import dataclass

from tuneparts.search.arm import DATA_KEY, method_config
from tuneparts.search.events import TrialId
from tuneparts.search.plan import SEE_LOG, WORKER_DIED, Plan
from tuneparts.search.segment import Segment
from tuneparts.training.config import SupervisedMethod


@dataclass(frozen=True)
class Group:
    """What a worker is given: mostly one segment."""

    segments: tuple[Segment, ...]
    packed: int = 1
    """Slots of the pack that they are trained in; 1 for a segment by itself."""


class Groups:
    """Hands out the segments of a plan to workers, in packs where their arms ask for it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._alone: set[TrialId] = set()
        """Trials whose pack failed or lost its process: they are not packed again."""

    def take(self, arms: Container[str] | None = None) -> Group | None:
        """Take what a worker is to do next, of these arms if given; None while there is nothing."""
        plan, first = self.plan, self.plan.next(arms)
        if first is None:
            return None
        packed = plan.search.arm(first.trial.arm).packed
        if packed == 1 or first.trial in self._alone:
            return Group((first,))
        found, others = {first.trial.index % packed: first}, list[Segment]()
        while len(found) < packed and len(others) < packed:
            segment = plan.next({first.trial.arm})
            if segment is None:
                break
            slot = segment.trial.index % packed
            if slot in found or segment.trial in self._alone or _key(segment) != _key(first):
                others.append(segment)
            else:
                found[slot] = segment
        for segment in others:
            plan.give_back(segment)
        return Group(tuple(found.values()), packed)

    def started(self, group: Group) -> None:
        for segment in group.segments:
            self.plan.started(segment)

    def is_over(self, group: Group) -> bool:
        return all(map(self.plan.is_over, group.segments))

    def lost(self, group: Group, what: str = WORKER_DIED, why: str = SEE_LOG) -> bool:
        """Queue a group again that lost its worker; returns whether it is. See `Plan.lost`."""
        if group.packed == 1:
            return self.plan.lost(group.segments[0], what, why)
        for segment in group.segments:  # one of them may be to blame, and is then alone
            self.give_back_alone(segment)
        return True

    def give_back_alone(self, segment: Segment) -> None:
        """Queue a segment of a pack again, to be trained by itself."""
        if not self.plan.is_over(segment):
            self._alone.add(segment.trial)
            self.plan.give_back(segment)


def _key(segment: Segment) -> str:
    """What the segments of a pack have in common."""
    from tuneparts.training.pack import pack_key  # needs torch

    config = method_config(segment.config)
    assert isinstance(config, SupervisedMethod)
    bounds = [segment.trial.seed, segment.round, segment.start, segment.until]
    return json.dumps([*bounds, segment.config.get(DATA_KEY), pack_key(config)], sort_keys=True)
