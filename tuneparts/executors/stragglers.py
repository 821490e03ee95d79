"""Gives up a trial that takes far longer than the others of its arm, for which the arm would wait.

`TUNEPARTS_INTERVAL_LIMIT` ends whatever hangs, after hours. What the other trials took says much
sooner that something is wrong.
"""

import itertools
from collections.abc import Iterator

from tuneparts.core.errors import HangError
from tuneparts.executors.logs import TrialLog
from tuneparts.executors.worker import Report
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.segment import Segment
from tuneparts.search.storage import Folder

MULTIPLE = 10.0
"""How many times the longest interval of the other trials an interval may take."""
FLOOR = 600.0
"""Seconds that every interval may take: to build a learner and to read its data is part of it."""
FEWEST = 3
"""Intervals of other trials that must be known."""


def overdue(journal: Journal, segment: Segment, seconds: float, storage: str) -> Report | None:
    """The report of a segment that is to be given up; None if it may go on.

    The reason is added to the trial's log, so the trial's worker must have been heard of last.

    Args:
        journal: of the search.
        segment: what is running.
        seconds: since it was started, or last reported.
        storage: where the trial's log lies.
    """
    if seconds < FLOOR:
        return None
    limit = _limit(journal, segment.trial)
    if limit is None or seconds < limit:
        return None
    error = HangError(
        f"an interval of `{segment.trial.arm}` ends within {limit:.0f} s, which is {MULTIPLE:g} "
        "times the longest of its other trials and ten minutes at least, but this one did not."
    )
    log = TrialLog(Folder(storage), segment.trial)
    log.add(str(error))
    log.keep()
    return Report(done=True, failure=f"{type(error).__name__}: {error}")


def _limit(journal: Journal, trial: TrialId) -> float | None:
    """Seconds that an interval of a trial may take; None while too little is known."""
    known = list(_other_intervals(journal, trial))
    return max(FLOOR, MULTIPLE * max(known)) if len(known) >= FEWEST else None


def _other_intervals(journal: Journal, trial: TrialId) -> Iterator[float]:
    for other, record in journal.trials.items():
        if other.arm == trial.arm and other != trial:
            spent = [
                record.rows[step].metrics.get("cost/seconds", 0.0) for step in sorted(record.rows)
            ]
            yield from (after - before for before, after in itertools.pairwise([0.0, *spent]))
