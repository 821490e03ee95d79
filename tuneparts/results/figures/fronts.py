"""Several objectives: every trial between them, the front of each seed, the selected trials."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, by_arm, canvas, counts_axis, place
from tuneparts.results.figures.style import ArmStyle
from tuneparts.results.run_data import RunData
from tuneparts.results.select import members
from tuneparts.results.tables import label


def pareto(run_data: RunData) -> Drawing | Note:
    """Draw every trial by its objectives, the front of each seed, and the selected trials.

    With more than two objectives there is a panel for the first against each other one.
    """
    title, names = "Pareto fronts", list(run_data.metadata.objectives)
    if not names:
        return Note(title, "The search has one objective. Give it several as `objectives`.")
    data = members(run_data.trials, run_data.metadata)
    if data.empty:
        return Note(title, f"No finished trial has all of {', '.join(names)} yet.")
    selected = set(run_data.selected.get("trial", ()))
    data = data.assign(selected=[trial in selected for trial in data["trial"]])
    data = data.sort_values("on_front", ascending=False, kind="stable")  # the legend has the first
    others = names[1:]
    figure = canvas(len(others))
    for panel, other in enumerate(others):
        where = place(panel, len(others))
        for _, style, own in by_arm(run_data.metadata, data):
            for trace in _traces(own, (other, names[0]), style, has_lines=len(names) == 2):
                trace.showlegend = trace.name == style.name and panel == 0
                figure.add_trace(trace, **where)
        counts_axis(figure, label(other, arrow=True), data[other].tolist(), where)
        figure.update_yaxes(title_text=label(names[0], arrow=True), **where)
    caption = (
        "Every finished trial by its objectives; filled where no other trial of its arm and seed "
        "dominates it"
        + (", with a line through the front of each seed" if len(names) == 2 else "")
        + f". Rings: {run_data.metadata.rule.words(run_data.metadata.weighed)}, of each seed."
    )
    left_out = int((run_data.trials["outcome"] == "finished").sum()) - len(data)
    if left_out:
        caption += f" {left_out} finished trials lack an objective and are left out."
    return Drawing(title, figure, caption, data)


def _traces(
    own: pd.DataFrame, pair: tuple[str, str], style: ArmStyle, *, has_lines: bool
) -> list[go.Scatter]:
    """The trials of one arm, the staircase of each seed where a front is a line, and the rings."""

    def trace(rows: pd.DataFrame, **look: Any) -> go.Scatter:
        x, y = (rows[name].tolist() for name in pair)
        return go.Scatter(x=x, y=y, legendgroup=style.name, **look)

    marks = {
        "color": style.colour,
        "symbol": [style.symbol if on else f"{style.symbol}-open" for on in own["on_front"]],
        "size": 8,
        "opacity": [1.0 if on else 0.55 for on in own["on_front"]],
    }
    hover = "%{text}<br>%{x}, %{y:.4f}<extra></extra>"
    names = own["trial"].tolist()
    found = [
        trace(own, name=style.name, mode="markers", marker=marks, text=names, hovertemplate=hover)
    ]
    if has_lines:
        shape = "hv" if schema.lookup(pair[0]).direction is schema.Direction.DOWN else "vh"
        line = style.line(1.5, shape=shape)
        for _, seed in own[own["on_front"]].groupby("seed"):
            ordered = seed.sort_values(pair[0])
            found.append(trace(ordered, mode="lines", line=line, hoverinfo="skip"))
    ring = {"color": style.colour, "symbol": "circle-open", "size": 17, "line": {"width": 2}}
    return [*found, trace(own[own["selected"]], mode="markers", marker=ring, hoverinfo="skip")]
