"""What trials keep: states of learners between intervals, and the tables that learners leave.

A file is named by round and steps. Within a round the newest two stay, so that a damaged one
has a predecessor. At the end of a round its last state stays as the start of the next round,
for this trial or for one that copies it.
"""

import functools
import logging
import queue
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuneparts.core.errors import CheckpointError, TunepartsError
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder
from tuneparts.training import checkpoint
from tuneparts.training.learner import Columns, to_csv

_NAME = re.compile(r"^r(\d{3})-p(\d{9})\.pt$")
_HANG = "hang-"
_OURS = re.compile(rf"^({_HANG}(pack-)?)?r\d{{3}}-p\d{{9}}(\.pt)?$")
"""The files that are written here; others in the folder of a trial are never deleted."""
_PATIENCE = 60.0
"""Seconds after the end of a search that removing states may take."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundCheckpoint:
    """A state that a segment can start from."""

    state: dict[str, Any]
    round: int
    """That of the segment, if it was interrupted here; one less, if the round before ended here;
    more, if the trial has gone further than its journal knows."""


class CheckpointStore:
    """The checkpoints of all trials of a search."""

    def __init__(self, storage: Folder) -> None:
        self._folder = functools.lru_cache(8)(partial(_trial_folder, storage))

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

    def find(self, segment: Segment) -> FoundCheckpoint | None:
        """Find the newest readable state to start a segment from; None to start from nothing.

        A journal on a disk that lost its last writes may ask for a round that was over long ago.
        The state is then of a later round; what the trial reported on the way is in it.
        """
        own = self._folder(segment.trial)
        names = [name for name in own.names() if _NAME.match(name)]
        for name in reversed([n for n in names if _parse(n)[0] >= segment.round]):
            state = _read(own, name)
            if state is not None:
                return FoundCheckpoint(state, round=_parse(name)[0])
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
        return FoundCheckpoint(state, round=segment.round - 1)

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


def _trial_folder(storage: Folder, trial: TrialId, *names: str) -> Folder:
    return storage.child(*str(trial).split("/"), *names)


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


class ArtifactStore:
    """The tables that trials left: CSV files beside their states."""

    def __init__(self, storage: Folder) -> None:
        self._storage = storage

    def put(self, trial: TrialId, tables: Mapping[str, Columns]) -> None:
        """Keep the tables of a finished trial; tables of the same name are replaced."""
        for name, columns in tables.items():
            folder = _trial_folder(self._storage, trial, "exhibits")
            folder.write(f"{name}.csv", to_csv(columns).encode())

    def find(self, trial: str, name: str) -> str | None:
        """Read a table as CSV text; None where the trial left none of this name."""
        folder = _trial_folder(self._storage, TrialId.parse(trial), "exhibits")
        return folder.read(f"{name}.csv").decode() if f"{name}.csv" in folder.names() else None


class Cleaner:
    """A thread that removes the states of trials, since storage may be slow to answer."""

    def __init__(self, storage: str) -> None:
        self._store = CheckpointStore(Folder(storage))
        self._trials: queue.SimpleQueue[TrialId | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def forget(self, trial: TrialId) -> None:
        """Remove the checkpoints of a trial some time soon."""
        self._trials.put(trial)

    def close(self) -> None:
        """Finish what was asked for; what a silent storage keeps goes when the run is resumed."""
        self._trials.put(None)
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        while (trial := self._trials.get()) is not None:
            try:
                self._store.remove(trial)
            except (OSError, TunepartsError) as error:  # a state too many does no harm
                _log.warning("the checkpoints of %s could not be removed: %s", trial, error)
