"""Checkpoints: the states of learners between intervals.

A file is named by round and steps. Within a round the newest two stay, so that a damaged one has a
predecessor. The last state of a round stays as the start of the next, here or in a copy.
"""

import functools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneparts.core.errors import CheckpointError
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder
from tuneparts.training import checkpoint

_NAME = re.compile(r"^r(\d{3})-p(\d{9})\.pt$")
_HANG = "hang-"
_OURS = re.compile(rf"^({_HANG}(pack-)?)?r\d{{3}}-p\d{{9}}(\.pt)?$")
"""The files that are written here; others in the folder of a trial are never deleted."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _FoundCheckpoint:
    """A state that a segment can start from."""

    state: dict[str, Any]
    round: int
    """That of the segment, if it was interrupted here; one less, if the round before ended here;
    more, if the trial has gone further than its journal knows."""


class CheckpointStore:
    """The checkpoints of all trials of a search."""

    def __init__(self, storage: Folder) -> None:
        self._folder = functools.lru_cache(8)(storage.of_trial)

    def put(self, segment: Segment, steps: int, state: Mapping[str, Any], *, last: bool) -> None:
        """Keep a state, the `last` of its segment or not, and delete superfluous ones."""
        folder = self._folder(segment.trial)
        before = _written(folder)
        folder.write(_name(segment.round, steps), checkpoint.to_bytes(state))
        for name in before:
            here, _ = _parse(name)
            is_newest = name == before[-1] and here == segment.round and not last
            # Another trial may still have to copy the state that the round before ended with.
            is_milestone = here == segment.round - 1 and not name.startswith(_HANG)
            if not is_newest and not is_milestone and name != _name(segment.round, steps):
                folder.delete(name)

    def note_hang(self, segment: Segment, steps: int, *, of: str = "") -> None:
        """Record that the interval after so many steps was ended because it took too long.

        `of` names what the segment was part of, if it may not be what hung.
        """
        self._folder(segment.trial).write(_hang(segment, steps, of), b"")

    def has_hung(self, segment: Segment, steps: int, *, of: str = "") -> bool:
        """Whether `note_hang` was called for this interval, and no state was kept since."""
        return _hang(segment, steps, of) in self._folder(segment.trial).names()

    def find(self, segment: Segment) -> _FoundCheckpoint | None:
        """Find the newest readable state to start a segment from; None to start from nothing.

        It is of a later round where the journal lost its last writes.
        """
        own = self._folder(segment.trial)
        names = [name for name in own.names() if _NAME.match(name)]
        for name in reversed([n for n in names if _parse(n)[0] >= segment.round]):
            state = _read(own, name)
            if state is not None:
                return _FoundCheckpoint(state, round=_parse(name)[0])
        if segment.round == 0:
            return None
        source = segment.trial if segment.donor is None else segment.donor
        folder = self._folder(source)
        before = [n for n in folder.names() if _NAME.match(n) and _parse(n)[0] == segment.round - 1]
        state = _read(folder, before[-1]) if before else None
        if state is None:
            raise CheckpointError(
                f"round {segment.round} of {segment.trial} starts from the last state of {source}, "
                f"but none can be read in {folder.uri}."
            )
        return _FoundCheckpoint(state, round=segment.round - 1)

    def remove(self, trial: TrialId, *, only_hangs: bool = False) -> None:
        """Delete all states of a trial, or only the notes of intervals that took too long."""
        folder = self._folder(trial)
        for name in _written(folder):
            if name.startswith(_HANG) or not only_hangs:
                folder.delete(name)

    def last(self, trial: TrialId) -> dict[str, Any] | None:
        """The newest readable state of a trial, whatever its round; None when there is none."""
        folder = self._folder(trial)
        names = [name for name in folder.names() if _NAME.match(name)]
        found = (_read(folder, name) for name in reversed(names))
        return next((state for state in found if state is not None), None)


def _written(folder: Folder) -> list[str]:
    return [name for name in folder.names() if _OURS.match(name)]


def _read(folder: Folder, name: str) -> dict[str, Any] | None:
    try:
        return checkpoint.from_bytes(folder.read(name), source=f"{folder.uri}/{name}")
    except CheckpointError as error:
        _log.warning("%s The one before it is used.", error)
        return None


def _name(number: int, steps: int) -> str:
    return f"r{number:03d}-p{steps:09d}.pt"


def _hang(segment: Segment, steps: int, of: str) -> str:
    return f"{_HANG}{of}r{segment.round:03d}-p{steps:09d}"


def _parse(name: str) -> tuple[int, int]:
    match = _NAME.match(name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)
