"""Which trials of a replicate still need their checkpoints.

Of the trials that ended, the selected one so far keeps its last state, and a donor keeps its own
until it has been copied. One that failed keeps it for a second try, and is not looked at here.
"""

from collections import Counter
from collections.abc import Mapping

from tuneparts.core import pareto
from tuneparts.core.schema import Metric
from tuneparts.core.selection import Best, Selection
from tuneparts.search.journal import TrialEnded, TrialId, TrialRecord
from tuneparts.search.segment import Result, Segment


class States:
    """The states of one replicate's trials that have ended and are still there."""

    def __init__(self, *objectives: Metric, selection: Selection | None = None) -> None:
        self._objectives = objectives
        self._selection = selection or Best()
        self._donors: Counter[TrialId] = Counter()
        self._ended: dict[TrialId, tuple[TrialEnded, Mapping[str, float]]] = {}

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
            self._ended[trial] = record.end, {} if last is None else last.metrics

    def __len__(self) -> int:
        return len(self._ended)

    def drop(self) -> list[TrialId]:
        """List the trials whose states nobody will need, and know them no more.

        A trial that neither is selected of those that finished nor in their Pareto front will not
        be selected later.
        """
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
        on_front = pareto.front(pareto.oriented(points, self._objectives))
        return chosen | {i for i, is_on in zip(indices, on_front, strict=True) if is_on}
