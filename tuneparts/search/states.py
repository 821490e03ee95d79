"""Which trials of a replicate still need their checkpoints.

Of the trials that ended, the selected one so far keeps its last state, and a donor keeps its own
until it has been copied. One that failed keeps it for a second try, and is not looked at here.
"""

from collections import Counter

from tuneparts.journal import TrialEnded, TrialId, TrialRecord
from tuneparts.schema import Metric, best_index
from tuneparts.search.segment import Segment


class States:
    """The states of one replicate's trials that have ended and are still there."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._donors: Counter[TrialId] = Counter()
        self._ended: dict[TrialId, tuple[TrialEnded, float | None]] = {}

    def begin(self, segment: Segment) -> None:
        """Hear of a segment that may run from now on."""
        if segment.donor is not None:
            self._donors[segment.donor] += 1

    def end(self, segment: Segment) -> None:
        """Hear that a segment is over."""
        if segment.donor is not None:
            self._donors[segment.donor] -= 1

    def add(self, trial: TrialId, record: TrialRecord) -> None:
        """Hear of a trial that ended; others, and those that failed, are left alone."""
        if record.end is not None and record.end.outcome != "failed":
            last = record.last
            score = None if last is None else last.metrics.get(self._metric.name)
            self._ended[trial] = record.end, score

    def __len__(self) -> int:
        return len(self._ended)

    def drop(self) -> list[TrialId]:
        """List the trials whose states nobody will need, and know them no more.

        A trial that is not the best of those that finished will not become it.
        """
        finished = {
            trial.index: score
            for trial, (end, score) in self._ended.items()
            if end.outcome == "finished"
        }
        best = best_index(finished, self._metric)
        dropped = [
            trial for trial in self._ended if trial.index != best and not self._donors[trial]
        ]
        for trial in dropped:
            del self._ended[trial]
        return dropped
