"""Which rows can be compared: those with a finite score."""

import math

from tuneparts.search.journal import TrialRecord
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search


def unscored(search: Search, segment: Segment, record: TrialRecord) -> str | None:
    """Why the row that a segment ended with cannot be compared with others, if it cannot.

    Args:
        search: its metric is the score.
        segment: what ended.
        record: what the journal knows of its trial.
    """
    metric = search.metric
    row = record.at(segment.until) or record.last
    score = None if row is None else row.metrics.get(metric)
    if score is not None and not math.isfinite(score):
        return f"a score is a finite number, but {metric} is {score}."
    # An arm that runs a single trial has nothing to choose, and needs no score.
    is_compared = search.arm(segment.trial.arm).trials_per_seed > 1
    if score is None and row is not None and is_compared:
        return (
            f"trials of `{segment.trial.arm}` are compared by {metric}, but its row after "
            f"{row.step} passes has only {', '.join(sorted(row.metrics))}. Hold out "
            "validation data, or select by another metric."
        )
    return None
