"""How far a search is and how long it will still take, from what its trials have spent."""

from collections.abc import Iterable
from datetime import datetime

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.select import OUTCOMES, column
from tuneparts.search.card import RunCard
from tuneparts.search.frames import NOT_STARTED
from tuneparts.search.stopping import covered

COLUMNS = ("arm", "total", "open", *OUTCOMES, "fraction", "best")


def share(open_passes: Iterable[float], num_ended: float, *, total: int, budget: int) -> float:
    """Return which share of an arm's passes is done; a trial that ended early counts as whole.

    `open_passes` are those so far of trials that have not ended. With a budget of 0, where it
    varies from trial to trial, only ended trials count.
    """
    begun = sum(min(passes, budget) / budget for passes in open_passes) if budget else 0.0
    return min(1.0, (num_ended + begun) / total)


def arms(metadata: RunCard, trials: pd.DataFrame) -> pd.DataFrame:
    """Count the trials of each arm: one row per arm with `COLUMNS`.

    `best` is the best selection score so far.
    """
    rows = []
    metric = schema.lookup(metadata.metric) if metadata.metric else None
    for arm in metadata.arms:
        own = trials[trials["arm"] == arm.name]
        ended = own["outcome"].isin([*OUTCOMES, NOT_STARTED])
        scores = column(own, metric.name).dropna() if metric else pd.Series(dtype=float)
        is_up = metric is not None and metric.direction is schema.Direction.UP
        rows.append(
            {
                "arm": arm.name,
                "total": arm.num_expected,
                "open": int((~ended).sum()),
                **{outcome: int((own["outcome"] == outcome).sum()) for outcome in OUTCOMES},
                "fraction": share(
                    column(own[~ended], "cost/passes").fillna(0.0),
                    int(ended.sum()),
                    total=arm.num_expected,
                    budget=arm.passes,
                ),
                "best": (scores.max() if is_up else scores.min()) if len(scores) else None,
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def fraction(metadata: RunCard, of_arms: pd.DataFrame) -> float:
    """Return which share of the whole search is done, with arms weighed by their passes."""
    weights = [arm.num_expected * max(arm.passes, 1) for arm in metadata.arms]
    parts: list[float] = of_arms["fraction"].tolist()
    return sum(w * part for w, part in zip(weights, parts, strict=True)) / sum(weights)


def seconds_spent(trials: pd.DataFrame, now: datetime) -> float:
    """Return the seconds in which a trial ran; time between stop and resume is left out."""
    return covered(
        (start.timestamp(), (now if pd.isna(end) else end).timestamp())
        for start, end in zip(trials["start"], trials["end"], strict=True)
        if not pd.isna(start)
    )


def seconds_left(part: float, spent: float) -> float | None:
    """Extrapolate the seconds that are left; None before anything is done."""
    return spent * (1 - part) / part if part > 0 else None


def clock(seconds: float) -> str:
    """Write seconds as a clock does.

    Example:
        >>> clock(3723), clock(123)
        ('1:02:03', '2:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
