"""Which trials are trained together: packs, formed by index inside what an algorithm asks for.

A pack is a segment with lanes, and one unit of work: queued, taken, and lost as a whole. To the
journal, to algorithms and to selection there are only trials.
"""

import dataclasses
import json
from collections.abc import Collection, Sequence

from tuneparts.journal import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.spec import DATA_KEY, Arm, Search, method_config


def grouped(arm: Arm, run: Sequence[Segment]) -> list[tuple[Segment, ...]]:
    """Split segments of one replicate into those that are trained together, in order.

    Segments go together that begin and end at the same passes and differ only in what lanes can
    differ in. Which workers are free plays no part, so that a rerun makes the same packs.
    """
    if arm.packed == 1:
        return [(segment,) for segment in run]
    alike: dict[str, list[Segment]] = {}
    for segment in run:
        alike.setdefault(_key(segment), []).append(segment)
    return [
        tuple(group)
        for same in alike.values()
        for group in (same[at : at + arm.packed] for at in range(0, len(same), arm.packed))
    ]


def pack_of(lanes: Sequence[Segment]) -> Segment:
    """The segment that stands for several; a single one is itself."""
    return lanes[0] if len(lanes) == 1 else dataclasses.replace(lanes[0], lanes=tuple(lanes))


class Packs:
    """The packs of a search that wait or run, and their lanes that have not ended.

    Args:
        search: whose arms say how many trials a pack has.
    """

    def __init__(self, search: Search) -> None:
        self._has_any = any(arm.packed > 1 for arm in search.arms)
        self._of: dict[TrialId, Segment] = {}
        """Trial -> the pack that it is a live lane of."""

    def formed(self, arm: Arm, run: Sequence[Segment], ended: Collection[TrialId]) -> list[Segment]:
        """What to queue for a batch: packs, and segments alone; those that ended are left out.

        A pack has as many lanes as it began with, also after a restart, because how numbers are
        rounded depends on it.
        """
        if not self._has_any:
            return [segment for segment in run if segment.trial not in ended]
        found = []
        for group in grouped(arm, run):
            live = [segment.trial for segment in group if segment.trial not in ended]
            if live:
                found.append(pack_of(group))
                if len(group) > 1:
                    self._of.update(dict.fromkeys(live, found[-1]))
        return found

    def taken(self, segment: Segment) -> Segment:
        """A segment as a worker gets it: lanes that have ended meanwhile are marked."""
        over = [
            number
            for number, lane in enumerate(segment.lanes)
            if self._of.get(lane.trial) is not segment
        ]
        return dataclasses.replace(segment, over=tuple(over)) if segment.lanes else segment

    def whole(self, segment: Segment) -> Segment:
        """A pack as it was queued, given as it was taken."""
        queued = (self._of[lane.trial] for lane in segment.lanes if lane.trial in self._of)
        return next(queued, segment)

    def left(self, segment: Segment) -> Segment | None:
        """Hear that a trial's segment runs no more; returns what the queue is to hear of.

        That is the segment itself, the pack of which it was the last lane, or nothing.
        """
        pack = self._of.pop(segment.trial, None)
        if pack is None:
            return segment
        return None if any(lane.trial in self._of for lane in pack.lanes) else pack

    def opened(self, pack: Segment) -> list[Segment]:
        """Take the lanes of a pack that have not ended out of it."""
        return [lane for lane in pack.lanes if self._of.pop(lane.trial, None) is not None]


def _key(segment: Segment) -> str:
    bounds = [segment.start, segment.until, segment.round, segment.config.get(DATA_KEY)]
    return json.dumps([bounds, method_config(segment.config).pack_key()], sort_keys=True)
