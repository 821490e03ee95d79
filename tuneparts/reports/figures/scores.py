"""Every arm's score with its uncertainty and its seeds, the best on top: the table as a picture."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts import schema
from tuneparts.reports.figures.drawing import Drawing, Note, canvas
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import column
from tuneparts.reports.statistics import estimate, student_interval
from tuneparts.reports.tables import label

_ROW_HEIGHT = 26


def scores(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Mean over seeds with Student's interval, and each seed as a faint mark."""
    title = f"{label(metric).capitalize()} by arm"
    data = intervals(run_data, metric)
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    styles = arm_styles(run_data.metadata)
    figure = canvas()
    for row in data.sort_values("mean", ascending=is_up, kind="stable").to_dict("records"):
        arm = styles[str(row["arm"])]
        seeds = _seeds(run_data, str(row["arm"]), metric)
        figure.add_trace(
            go.Scatter(
                x=seeds,
                y=[arm.name] * len(seeds),
                mode="markers",
                marker={"color": arm.wash, "symbol": arm.symbol, "size": 8},
                hovertemplate="%{x}<extra>one seed</extra>",
                showlegend=False,
            )
        )
        known = not pd.isna(row["low"])
        figure.add_trace(
            go.Scatter(
                x=[row["mean"]],
                y=[arm.name],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [row["high"] - row["mean"] if known else 0],
                    "arrayminus": [row["mean"] - row["low"] if known else 0],
                    "thickness": 2,
                },
                mode="markers",
                marker={"color": arm.colour, "symbol": arm.symbol, "size": 10},
                showlegend=False,
            )
        )
    figure.update_layout(height=_ROW_HEIGHT * len(data) + 90)
    figure.update_xaxes(title_text=label(metric, arrow=True))
    figure.update_yaxes(type="category")
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation in each seed: mean, "
        "95 % interval (Student's t over seeds; none where an arm has one seed), and the seeds as "
        "faint marks. Arms share seeds, so overlapping intervals do not mean equal arms."
    )
    return Drawing(title, figure, caption, data)


def intervals(run_data: RunData, metric: str) -> pd.DataFrame:
    """Columns arm, mean, low, high, seeds; arms without a score have no row."""
    rows = []
    for arm in run_data.metadata.arms:
        values = _seeds(run_data, arm.name, metric)
        if values:
            found = student_interval(values)
            low, high = (found.low, found.high) if found else (float("nan"), float("nan"))
            rows.append((arm.name, estimate(values).mean, low, high, len(values)))
    return pd.DataFrame(rows, columns=["arm", "mean", "low", "high", "seeds"])


def _seeds(run_data: RunData, arm: str, metric: str) -> list[float]:
    own = run_data.selected[run_data.selected["arm"] == arm]
    return [float(value) for value in column(own, metric).dropna()]
