"""How far a search is, counted from the frames of its trials."""

from datetime import datetime

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.select import OUTCOMES, column
from tuneparts.search.card import RunCard
from tuneparts.search.frames import NOT_STARTED
from tuneparts.search.stopping import covered

COLUMNS = ("arm", "total", "open", *OUTCOMES, "fraction", "best")


def arms(metadata: RunCard, trials: pd.DataFrame) -> pd.DataFrame:
    """Count the trials of each arm: one row per arm with `COLUMNS`.

    `fraction` is the share of the arm's steps that is done: a trial that ended early counts as
    whole, and where the budget varies (0) only ended ones count. `best` is by the metric.
    """
    rows = []
    metric = schema.lookup(metadata.metric) if metadata.metric else None
    for arm in metadata.arms:
        own = trials[trials["arm"] == arm.name]
        ended = own["outcome"].isin([*OUTCOMES, NOT_STARTED])
        scores = column(own, metric.name).dropna() if metric else pd.Series(dtype=float)
        is_up = metric is not None and metric.direction is schema.Direction.UP
        steps = column(own[~ended], "cost/steps").fillna(0.0).clip(upper=arm.steps)
        begun = float(steps.sum()) / arm.steps if arm.steps else 0.0
        rows.append(
            {
                "arm": arm.name,
                "total": arm.num_expected,
                "open": int((~ended).sum()),
                **{outcome: int((own["outcome"] == outcome).sum()) for outcome in OUTCOMES},
                "fraction": min(1.0, (int(ended.sum()) + begun) / arm.num_expected),
                "best": (scores.max() if is_up else scores.min()) if len(scores) else None,
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def fraction(metadata: RunCard, of_arms: pd.DataFrame) -> float:
    """Return which share of the whole search is done, with arms weighed by their steps."""
    weights = [arm.num_expected * max(arm.steps, 1) for arm in metadata.arms]
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
