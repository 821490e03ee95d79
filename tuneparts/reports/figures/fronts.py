"""Several objectives: the trials between them, the fronts, and what the fronts cover over cost."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts import schema
from tuneparts.reports import fronts
from tuneparts.reports.figures.drawing import Drawing, Note, add_lines, canvas, counts_axis, place
from tuneparts.reports.figures.style import ArmStyle, arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.statistics import estimate
from tuneparts.reports.tables import label


def pareto(run_data: RunData) -> Drawing | Note:
    """Draw every trial by its objectives, the front of each seed, and the selected trials.

    With more than two objectives there is a panel for the first against each other one.
    """
    title, names = "Pareto fronts", list(run_data.metadata.objectives)
    if not names:
        return Note(title, "The search has one objective. Give it several as `objectives`.")
    data = fronts.members(run_data.trials, run_data.metadata)
    if data.empty:
        return Note(title, f"No finished trial has all of {', '.join(names)} yet.")
    selected = set(run_data.selected.get("trial", ()))
    data = data.assign(selected=[trial in selected for trial in data["trial"]])
    data = data.sort_values("on_front", ascending=False, kind="stable")  # the legend has the first
    others = names[1:]
    figure = canvas(len(others))
    for panel, other in enumerate(others):
        where = place(panel, len(others))
        for arm, style in arm_styles(run_data.metadata).items():
            own = data[data["arm"] == arm]
            if own.empty:
                continue
            pair = [other, names[0]]
            figure.add_trace(_marks(own, pair, style, is_named=panel == 0), **where)
            # Between more than two objectives a front is no line.
            if len(names) == 2:
                for _, seed in own[own["on_front"]].groupby("seed"):
                    figure.add_trace(_front(seed, pair, style), **where)
            figure.add_trace(_chosen(own[own["selected"]], pair, style), **where)
        counts_axis(figure, label(other, arrow=True), data[other].tolist(), where)
        figure.update_yaxes(title_text=label(names[0], arrow=True), **where)
    caption = (
        "Every finished trial by its objectives; filled where no other trial of its arm and seed "
        "dominates it"
        + (", with a line through the front of each seed" if len(names) == 2 else "")
        + f". Rings: {run_data.metadata.rule.words(run_data.metadata.weighed)}, of each seed."
    )
    return Drawing(title, figure, caption, data)


def _marks(own: pd.DataFrame, pair: list[str], style: ArmStyle, *, is_named: bool) -> go.Scatter:
    symbols = [style.symbol if on else f"{style.symbol}-open" for on in own["on_front"]]
    return go.Scatter(
        x=own[pair[0]].tolist(),
        y=own[pair[1]].tolist(),
        text=own["trial"].tolist(),
        name=style.name,
        legendgroup=style.name,
        showlegend=is_named,
        mode="markers",
        marker={
            "color": style.colour,
            "symbol": symbols,
            "size": 8,
            "opacity": [1.0 if on else 0.55 for on in own["on_front"]],
        },
        hovertemplate="%{text}<br>%{x}, %{y:.4f}<extra></extra>",
    )


def _front(seed: pd.DataFrame, pair: list[str], style: ArmStyle) -> go.Scatter:
    line = seed.sort_values(pair[0])
    shape = "hv" if schema.lookup(pair[0]).direction is schema.Direction.DOWN else "vh"
    return go.Scatter(
        x=line[pair[0]].tolist(),
        y=line[pair[1]].tolist(),
        mode="lines",
        # What is attained without more of the objective across: a staircase.
        line={"color": style.colour, "dash": style.dash, "width": 1.5, "shape": shape},
        legendgroup=style.name,
        showlegend=False,
        hoverinfo="skip",
    )


def _chosen(chosen: pd.DataFrame, pair: list[str], style: ArmStyle) -> go.Scatter:
    return go.Scatter(
        x=chosen[pair[0]].tolist(),
        y=chosen[pair[1]].tolist(),
        mode="markers",
        marker={"color": style.colour, "symbol": "circle-open", "size": 17, "line": {"width": 2}},
        legendgroup=style.name,
        showlegend=False,
        hoverinfo="skip",
    )


def hypervolume(run_data: RunData) -> Drawing | Note:
    """Draw how much of the objectives each arm covers, over the passes that it spent."""
    title = "Hypervolume over cost"
    if not run_data.metadata.objectives:
        return Note(title, "The search has one objective. Give it several as `objectives`.")
    each = fronts.coverage(run_data.trials, run_data.metadata)
    if each.empty:
        return Note(title, "No finished trial has all objectives yet.")
    each = each.assign(rank=each.groupby(["arm", "seed"]).cumcount())
    rows = []
    for (arm, _), own in each.groupby(["arm", "rank"], sort=False):
        mean = estimate(own["hypervolume"].to_numpy())
        rows.append((arm, own["passes"].mean(), mean.mean, mean.se, mean.num))
    data = pd.DataFrame(rows, columns=["arm", "passes", "hypervolume", "se", "seeds"])
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x="passes", y="hypervolume")
    counts_axis(figure, "passes of all trials so far", data["passes"].tolist(), {})
    figure.update_yaxes(title_text="hypervolume covered ↑", rangemode="tozero")
    caption = (
        "Hypervolume of the front so far, in the order of trials: mean and one standard error over "
        "seeds. 0 is the worst of every objective that any trial of the search has, 1 the best of "
        "all at once."
    )
    return Drawing(title, figure, caption, data)
