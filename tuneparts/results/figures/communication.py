"""Score against bytes sent, up and down: what an exchange of weights costs on the way.

After Figure 10 of Mlodozeniec et al. (2023, appendix J.3): each curve is a moving average over
evaluations, then a mean over seeds, against all that server and clients sent so far. An arm that
selects pays for all its trials, and one that follows another starts where its leader's bill ends.
"""

import pandas as pd

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.results.figures.accuracy import incumbents, leaders_bill
from tuneparts.results.figures.drawing import Drawing, Note, by_arm, canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.statistics import estimate
from tuneparts.results.tables import label
from tuneparts.search.card import ArmCard

_BYTES, _MEGABYTE = "communication/total", 1e6


def communication(
    run_data: RunData, metric: str = "val/accuracy", window: str = "1"
) -> Drawing | Note:
    """Draw a metric against bytes sent: mean and one standard error over seeds.

    `window` counts the evaluations of a moving average; it is text, as requests give it.
    """
    title = f"{label(metric).capitalize()} against communication"
    if not window.isdigit() or int(window) < 1:
        raise ConfigError(f"`window` counts evaluations, at least 1, but got `{window}`.")
    data = over_seeds(points(run_data, metric, int(window)))
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} and what it sent.")
    figure = canvas()
    for arm, style, own in by_arm(run_data.metadata, data):
        shape = "hv" if run_data.metadata.arm(arm).trials_per_seed > 1 else "linear"
        figure.add_scatter(
            x=own["megabytes"].tolist(),
            y=own["mean"].tolist(),
            error_y={"type": "data", "array": own["se"].tolist(), "thickness": 1},
            name=style.name,
            mode="lines+markers",
            line=style.line(2.5, shape=shape),
            marker=style.marker(7),
        )
    figure.update_xaxes(title_text="sent up and down (MB)", rangemode="tozero")
    figure.update_yaxes(title_text=label(metric, arrow=True))
    caption = (
        f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}) against all bytes that "
        "server and clients sent so far: mean and one standard error over seeds"
    )
    caption += f", each a moving average over {window} evaluations." if window != "1" else "."
    if any(arm.trials_per_seed > 1 for arm in run_data.metadata.arms):
        caption += " Arms that select show the best trial so far and pay for all."
    if any(arm.follows for arm in run_data.metadata.arms):
        caption += " Arms that follow another start where their leader's bytes end."
    return Drawing(title, figure, caption, data)


def points(run_data: RunData, metric: str, window: int) -> pd.DataFrame:
    """Return the score of each seed after so many bytes.

    Columns: arm, seed, report (number of the evaluation), bytes (leaders included), value.
    """
    rows = []
    values, sent = run_data.paths(metric), run_data.paths(_BYTES)
    for arm in run_data.metadata.arms:
        for seed in arm.seeds:
            start = leaders_bill(run_data, arm.name, seed, cost=_BYTES)
            found = (
                incumbents(run_data, arm, seed, metric, cost=_BYTES)
                if arm.trials_per_seed > 1
                else _along(arm, seed, values, sent, window=window)
            )
            rows += [
                (arm.name, seed, report, start + spent, value)
                for report, (spent, value) in enumerate(found)
                if spent > 0
            ]
    return pd.DataFrame(rows, columns=["arm", "seed", "report", "bytes", "value"])


def over_seeds(data: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds the reports that all of them have.

    Columns: arm, report, megabytes, mean, se, seeds.
    """
    rows = []
    for arm, own in data.groupby("arm", sort=False):
        num_seeds = own["seed"].nunique()
        for report, values in own.groupby("report"):
            if len(values) == num_seeds:
                point = estimate(values["value"].to_numpy())
                sent = float(values["bytes"].mean()) / _MEGABYTE
                rows.append((arm, report, sent, point.mean, point.se, point.num))
    return pd.DataFrame(rows, columns=["arm", "report", "megabytes", "mean", "se", "seeds"])


def _along(
    arm: ArmCard, seed: int, values: pd.DataFrame, sent: pd.DataFrame, *, window: int
) -> list[tuple[float, float]]:
    """Return bytes sent and the moving average of the score along the one trial of a seed."""

    def own(frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame[(frame["arm"] == arm.name) & (frame["seed"] == seed)]
        return rows[["step", "value"]].dropna()

    both = own(values).merge(own(sent), on="step", suffixes=("", ":sent")).sort_values("step")
    smooth = both["value"].rolling(window, min_periods=1).mean()
    return list(zip(both["value:sent"].astype(float), smooth.astype(float), strict=True))
