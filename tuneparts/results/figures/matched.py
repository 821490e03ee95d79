"""Families of arms compared at equal size: what one gains over the others, seed by seed.

Arms of one method at several sizes form a family, and lie on a curve of score against size. Two
families are compared where the first has an arm: the other's score at that size is interpolated
on its own curve of the same seed. Nothing is extrapolated.
"""

import re

import numpy as np
import pandas as pd

from tuneparts.results.figures.drawing import Drawing, Note, canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import student_interval
from tuneparts.results.tables import label

_SIZE = re.compile(r"(_(alpha|bits|delta|cutoff|exposure))?_m?\d+(_\d+)?$")
_COLUMNS = ["family", "at", "gain", "low", "high", "seeds"]


def matched(
    run_data: RunData, size: str = "size/entropy", metric: str = "test/accuracy"
) -> Drawing | Note:
    """Draw what the first family of arms gains over each other one at equal size."""
    title = f"{label(metric).capitalize()} at equal {label(size)}"
    trials = run_data.selected
    if size not in trials or metric not in trials:
        return Note(title, f"No finished trial has both {size} and {metric}.")
    arms = [arm.name for arm in run_data.metadata.arms]
    points = trials[["arm", "seed"]].assign(family=trials["arm"].map(family))
    points = points.assign(size=column(trials, size), score=column(trials, metric)).dropna()
    first = family(arms[0])
    data = gains(points, first)
    if data.empty:
        return Note(title, f"No other family of arms has sizes around those of {first}.")
    figure = canvas()
    for name, own in data.groupby("family", sort=False):
        figure.add_scatter(
            x=own["at"], y=own["gain"], name=str(name), mode="markers",
            error_y={
                "type": "data", "array": own["high"] - own["gain"],
                "arrayminus": own["gain"] - own["low"],
            },
        )  # fmt: skip
    figure.add_hline(y=0, line_width=1)
    figure.update_xaxes(title_text=label(size))
    figure.update_yaxes(title_text=f"{first} minus the other")
    caption = (
        f"Where each arm of {first} lies in {label(size)}, its {label(metric)} minus that of the "
        "other family, interpolated between its arms of the same seed: mean and 95 % interval, "
        "paired over seeds. Sizes beyond a family's arms are left out."
    )
    return Drawing(title, figure, caption, data)


def family(arm: str) -> str:
    """Name an arm without its size.

    Example:
        >>> [family(arm) for arm in ("pwfn_learnt_alpha_m3", "once_kmeans_16", "nearest_bits_4")]
        ['pwfn_learnt', 'once_kmeans', 'nearest']
    """
    return _SIZE.sub("", arm)


def gains(points: pd.DataFrame, first: str) -> pd.DataFrame:
    """Compute what the arms of one family gain over each other family at their sizes.

    `points` has one row per trial: family, arm, seed, size, score. The result has one per other
    family and arm: family, mean size and gain, its interval, and the seeds compared, two at least.
    """
    rows = []
    own = points[points["family"] == first]
    for other in (name for name in points["family"].unique() if name != first):
        curves = {
            seed: curve.sort_values("size")
            for seed, curve in points[points["family"] == other].groupby("seed")
        }
        for _, arm in own.groupby("arm", sort=False):
            found: list[tuple[float, float]] = []
            for seed, own_size, score in zip(arm["seed"], arm["size"], arm["score"], strict=True):
                curve = curves.get(seed)
                if curve is None or not curve["size"].min() <= own_size <= curve["size"].max():
                    continue
                there = float(np.interp(own_size, curve["size"], curve["score"]))
                found.append((float(own_size), float(score) - there))
            interval = student_interval([gain for _, gain in found])
            if interval is None:
                continue
            size, gain = np.mean(found, axis=0)
            rows.append((other, size, gain, interval.low, interval.high, len(found)))
    return pd.DataFrame(rows, columns=_COLUMNS)
