"""Which checkpoints are needed no more, and the thread that removes them."""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Mapping

from tuneparts.core import selection
from tuneparts.core.errors import TunepartsError
from tuneparts.core.schema import Metric
from tuneparts.core.selection import Best, Selection
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialEnded, TrialId
from tuneparts.search.segment import Result, Segment
from tuneparts.search.state import TrialRecord
from tuneparts.search.storage import Folder

_PATIENCE = 60.0
"""Seconds after the end of a search that removing checkpoints may take."""
_log = logging.getLogger(__name__)


class States:
    """Which trials of a seed of an arm have ended and still need their checkpoints.

    The selected one keeps its last state, a donor until it has been copied. Failed ones are not
    here.
    """

    def __init__(self, *objectives: Metric, selection: Selection | None = None) -> None:
        self._objectives = objectives
        self._selection = selection or Best()
        self._donors: Counter[TrialId] = Counter()
        self._ended: dict[TrialId, tuple[TrialEnded, Mapping[str, float]]] = {}

    def begin(self, segment: Segment) -> None:
        if segment.donor is not None:
            self._donors[segment.donor] += 1

    def end(self, segment: Segment) -> None:
        if segment.donor is not None:
            self._donors[segment.donor] -= 1

    def add(self, trial: TrialId, record: TrialRecord) -> None:
        """Note a trial that ended; others, and those that failed, are left alone."""
        if record.end is not None and record.end.outcome != "failed":
            last = record.last
            self._ended[trial] = record.end, {} if last is None else last.metrics

    def __len__(self) -> int:
        return len(self._ended)

    def drop(self) -> list[TrialId]:
        """List the trials whose states are not needed any more, and forget them."""
        finished = {
            trial.index: metrics
            for trial, (end, metrics) in self._ended.items()
            if end.outcome == "finished"
        }
        kept = self._selectable(finished)
        dropped = [
            trial for trial in self._ended if trial.index not in kept and not self._donors[trial]
        ]
        for trial in dropped:
            del self._ended[trial]
        return dropped

    def _selectable(self, finished: Mapping[int, Mapping[str, float]]) -> set[int | None]:
        if not self._selection.is_lasting:
            return set(finished)
        chosen = {self._selection.choose(finished, self._objectives)}
        if len(self._objectives) == 1:
            return chosen
        indices = sorted(finished)
        points = [Result(finished[i]).scores(self._objectives) for i in indices]
        on_front = selection.front(selection.oriented(points, self._objectives))
        return chosen | {i for i, is_on in zip(indices, on_front, strict=True) if is_on}


class Cleaner:
    """A thread that removes the states of trials, since storage may be slow to answer."""

    def __init__(self, storage: str) -> None:
        self._store = CheckpointStore(Folder(storage))
        self._trials: queue.SimpleQueue[TrialId | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def forget(self, trial: TrialId) -> None:
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
