"""Accuracy against operations: every subset of members as an operating point, and the best ones."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts.reports.figures.drawing import Drawing, Note, canvas
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.statistics import estimate

TITLE = "Accuracy against operations"
_ACCURACY, _FLOPS = "anytime/accuracy.", "anytime/flops."


def anytime(run_data: RunData) -> Drawing | Note:
    """Test accuracy of subsets of members, mean over seeds, with the frontier of each arm."""
    data = points(run_data)
    if data.empty:
        return Note(TITLE, "No selected trial has operating points.")
    figure = canvas()
    for arm, style in arm_styles(run_data.metadata).items():
        own = data[data["arm"] == arm]
        if own.empty:
            continue
        best = own[own["is_best"]]
        marker = {"color": style.colour, "symbol": style.symbol}
        figure.add_trace(
            go.Scatter(
                x=best["flops"].tolist(),
                y=best["accuracy"].tolist(),
                error_y={"type": "data", "array": best["se"].tolist()},
                name=style.name,
                legendgroup=arm,
                mode="lines+markers",
                line={"color": style.colour, "dash": style.dash, "width": 2.5},
                marker={**marker, "size": 9},
                text=best["members"].tolist(),
                hovertemplate="members %{text}: %{y:.4f} at %{x:.3s} FLOPs<extra></extra>",
            )
        )
        others = own[~own["is_best"]]
        figure.add_trace(
            go.Scatter(
                x=others["flops"].tolist(),
                y=others["accuracy"].tolist(),
                name=style.name,
                legendgroup=arm,
                showlegend=False,
                mode="markers",
                marker={**marker, "size": 6, "opacity": 0.45},
                text=others["members"].tolist(),
                hovertemplate="members %{text}: %{y:.4f} at %{x:.3s} FLOPs<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="FLOPs for one example", type="log")
    figure.update_yaxes(title_text="test accuracy")
    caption = (
        "Test accuracy of the mean prediction of every subset of members against its operations, "
        "mean and one standard error over seeds. Lines join the points of an arm that none of its "
        "cheaper points matches; faint points are the rest."
    )
    return Drawing(TITLE, figure, caption, data)


def points(run_data: RunData) -> pd.DataFrame:
    """One row per arm and subset: operations, mean accuracy over seeds, and whether it is best."""
    rows = []
    for arm, trials in run_data.selected.groupby("arm", sort=False):
        found = []
        for name in trials.columns:
            subset = str(name).removeprefix(_ACCURACY)
            if subset == name:
                continue
            known = trials.dropna(subset=[name])
            if known.empty:
                continue
            point = estimate(known[name].to_numpy(dtype=float))
            flops = float(known[_FLOPS + subset].mean())
            found.append((flops, -point.mean, subset.replace("_", " + "), point.se))
        top = float("-inf")
        for flops, negative, members, se in sorted(found):
            rows.append((arm, members, flops, -negative, se, -negative > top))
            top = max(top, -negative)
    return pd.DataFrame(rows, columns=["arm", "members", "flops", "accuracy", "se", "is_best"])
