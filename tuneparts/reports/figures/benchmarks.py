"""Figures over several runs: interquartile means, profiles, score over budget, mean ranks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tuneparts.reports.benchmark import Benchmark, over_budget
from tuneparts.reports.figures.drawing import Drawing, canvas
from tuneparts.reports.figures.style import ArmStyle, arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.tables import label

_ROW_HEIGHT = 34


def draw(runs: Sequence[tuple[str, RunData]], found: Benchmark) -> dict[str, Drawing]:
    """Draw all of them, each under its name in addresses; ranks only where they are valid."""
    styles = arm_styles(runs[0][1].metadata)
    drawings = {"means": _means(found, styles), "profile": _profile(found, styles)}
    for name, cost in (("budget", "cost/passes"), ("budget_seconds", "cost/seconds")):
        budget = over_budget(runs, found, cost)
        if len(budget):
            drawings[name] = _budget(found, styles, budget, cost.removeprefix("cost/"))
    if found.has_enough_for_ranks:
        drawings["ranks"] = _ranks(found, styles)
    return drawings


def score_name(found: Benchmark) -> str:
    """What the scores are, for axes."""
    if found.is_normalised:
        return f"{label(found.metric)} (references at 0 and 1)"
    return label(found.metric, arrow=True)


def _tasks(found: Benchmark) -> str:
    """How many tasks are taken together, and why not all."""
    if len(found.scaled_tasks) == len(found.tasks):
        return str(len(found.tasks))
    return f"the {len(found.scaled_tasks)} of {len(found.tasks)} that have two references"


def _dots(figure: go.Figure, rows: pd.DataFrame, styles: dict[str, ArmStyle]) -> None:
    for row in rows.to_dict("records"):
        style = styles[str(row["arm"])]
        figure.add_trace(
            go.Scatter(
                x=[row["mean"]],
                y=[style.name],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [row["high"] - row["mean"]],
                    "arrayminus": [row["mean"] - row["low"]],
                },
                mode="markers",
                marker={"color": style.colour, "symbol": style.symbol, "size": 11},
                showlegend=False,
            )
        )
    figure.update_layout(height=_ROW_HEIGHT * len(rows) + 90)
    figure.update_yaxes(type="category", autorange="reversed")


def _means(found: Benchmark, styles: dict[str, ArmStyle]) -> Drawing:
    rows = [
        (arm, mean, span.low, span.high)
        for arm, (mean, span) in found.interquartile_means().items()
    ]
    data = pd.DataFrame(rows, columns=["arm", "mean", "low", "high"])
    data = data.sort_values("mean", ascending=not found.prefers_larger, kind="stable")
    figure = canvas()
    _dots(figure, data, styles)
    figure.update_xaxes(title_text=score_name(found))
    caption = (
        f"Interquartile mean over tasks ({_tasks(found)}) and replicates (Agarwal et al. "
        "2021), with 95 % intervals from a bootstrap over tasks, then replicates. With few tasks "
        "they say how much the tasks differ, not what further tasks would show."
    )
    return Drawing("Interquartile means", figure, caption, data)


def _profile(found: Benchmark, styles: dict[str, ArmStyle]) -> Drawing:
    scores = np.concatenate(found.scaled)
    thresholds = np.linspace(float(scores.min()), float(scores.max()), 101)
    shares = found.profile(thresholds)
    figure, rows = canvas(), []
    for arm, values in zip(found.arms, shares, strict=True):
        style = styles[arm]
        figure.add_trace(
            go.Scatter(
                x=thresholds.tolist(),
                y=values.tolist(),
                name=style.name,
                mode="lines",
                line={"color": style.colour, "dash": style.dash, "width": 2.5},
            )
        )
        rows += [(arm, t, v) for t, v in zip(thresholds, values, strict=True)]
    figure.update_xaxes(title_text=score_name(found))
    figure.update_yaxes(title_text="share of tasks and replicates", range=[0, 1.02])
    caption = (
        f"Share of tasks ({_tasks(found)}) and replicates in which an arm is at least as good as "
        "the score on the axis; every task counts alike. An arm whose line is nowhere below "
        "another's is never behind it."
    )
    data = pd.DataFrame(rows, columns=["arm", "score", "share"])
    return Drawing("Performance profiles", figure, caption, data)


def _budget(
    found: Benchmark, styles: dict[str, ArmStyle], data: pd.DataFrame, spent: str
) -> Drawing:
    figure = canvas()
    for arm, own in data.groupby("arm", sort=False):
        style = styles[str(arm)]
        figure.add_trace(
            go.Scatter(
                x=own["share"].tolist(),
                y=own["mean"].tolist(),
                name=style.name,
                mode="lines",
                line={"color": style.colour, "dash": style.dash, "width": 2.5, "shape": "hv"},
            )
        )
    figure.update_xaxes(title_text=f"share of the {spent} of the dearest arm", tickformat=".0%")
    figure.update_yaxes(title_text=score_name(found))
    caption = (
        f"Mean over tasks ({_tasks(found)}) and replicates of the score that an arm would give "
        f"after so many {spent}, those of its leaders included; from where it has one in every "
        "task."
    )
    return Drawing(f"Score over {spent}", figure, caption, data)


def _ranks(found: Benchmark, styles: dict[str, ArmStyle]) -> Drawing:
    half = found.critical_difference / 2
    ranks = found.ranks.mean(axis=0)
    data = pd.DataFrame(
        {"arm": found.arms, "mean": ranks, "low": ranks - half, "high": ranks + half}
    )
    data = data.sort_values("mean", kind="stable")
    figure = canvas()
    _dots(figure, data, styles)
    figure.update_xaxes(title_text="mean rank (1 is the best)")
    caption = (
        f"Mean rank over {len(found.tasks)} tasks. Arms whose bars do not overlap differ at 5 %: a "
        f"bar is the critical difference of Nemenyi's test, {2 * half:.2f} ranks (Demsar 2006)."
    )
    return Drawing("Mean ranks", figure, caption, data)
