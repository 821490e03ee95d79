"""Score against passes spent so far: how good each arm is at every cost.

An arm with one trial per seed shows the score along that trial. An arm that selects shows the
score of the best trial so far by validation, after each finished trial, as if the trials of a
seed ran one after another; failed and stopped trials move it to the right. An arm that follows
another starts where its leader's bill ends.
"""

import math

import pandas as pd

from tuneparts.core import schema
from tuneparts.core.glossary import PASS_IN_SHORT
from tuneparts.core.schema import best_index
from tuneparts.results.figures.drawing import (
    Drawing,
    Note,
    add_band,
    bounds,
    by_arm,
    canvas,
    counts_axis,
)
from tuneparts.results.figures.style import focus_note, visible
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import estimate
from tuneparts.results.tables import label
from tuneparts.search.card import ArmCard

TITLE = "Accuracy against passes"


def accuracy(
    run_data: RunData, metric: str = "test/accuracy", cost: str = "cost/passes"
) -> Drawing | Note:
    """Draw a metric against cumulative cost: mean over seeds, band of one standard error.

    The cost is passes, or `cost/seconds` of the machine that the run ran on.
    """
    curves = over_seeds(anytime(run_data, metric, cost))
    spent = "passes" if cost == "cost/passes" else label(cost)
    title = f"{label(metric)} against {spent}"
    if (metric, cost) == ("test/accuracy", "cost/passes"):
        title = TITLE
    if curves.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    figure = canvas()
    for arm, style, own in by_arm(run_data.metadata, curves):
        shape = "hv" if run_data.metadata.arm(arm).trials_per_seed > 1 else "linear"
        shared = {"legendgroup": arm, "visible": visible(arm, run_data.metadata)}
        band = own.dropna(subset=["se"])
        edges = [
            (band["mean"] + sign * band["se"]).clip(*bounds(metric)).tolist() for sign in (1, -1)
        ]
        add_band(figure, style, band["passes"].tolist(), *edges, shape=shape, **shared)
        figure.add_scatter(
            x=own["passes"].tolist(),
            y=own["mean"].tolist(),
            name=style.name,
            mode="lines+markers",
            line=style.line(2.5, shape=shape),
            marker=style.marker(7),
            **shared,
        )
    counts_axis(figure, spent, curves["passes"].tolist(), {})
    figure.update_yaxes(title_text=label(metric, arrow=True))
    caption = _caption(run_data, metric)
    if cost != "cost/passes":
        machine = run_data.metadata.environment.get("machine", "a machine that is not recorded")
        caption += f" By {spent} instead of passes, on {machine}."
    return Drawing(title, figure, caption, curves)


def anytime(run_data: RunData, metric: str, cost: str = "cost/passes") -> pd.DataFrame:
    """Return the score of each seed after so much cost, with a row wherever it changes.

    Columns: arm, seed, passes (or the other cost; cumulative, leaders included), value.
    """
    rows = []
    paths = run_data.paths(metric)
    for arm in run_data.metadata.arms:
        for seed in arm.seeds:
            start = leaders_bill(run_data, arm.name, seed, cost=cost)
            points = (
                incumbents(run_data, arm, seed, metric, cost=cost)
                if arm.trials_per_seed > 1
                else _along(run_data, arm, seed, metric, paths, cost)
            )
            rows += [(arm.name, seed, start + passes, value) for passes, value in points]
    return pd.DataFrame(rows, columns=["arm", "seed", "passes", "value"])


def over_seeds(curves: pd.DataFrame) -> pd.DataFrame:
    """Average curves over seeds; each seed holds its last value until its next.

    Columns: arm, passes, mean, se, seeds.

    A point is drawn from where every seed that has any value has one, so that the mean never
    changes its seeds on the way.
    """
    rows = []
    for arm, own in curves.groupby("arm", sort=False):
        wide = own.pivot_table(index="passes", columns="seed", values="value", aggfunc="last")
        for passes, values in wide.sort_index().ffill().dropna().iterrows():
            point = estimate(values.to_numpy())
            rows.append((arm, passes, point.mean, point.se, point.num))
    return pd.DataFrame(rows, columns=["arm", "passes", "mean", "se", "seeds"])


def _along(
    run_data: RunData,
    arm: ArmCard,
    seed: int,
    metric: str,
    paths: pd.DataFrame,
    cost: str = "cost/passes",
) -> list[tuple[float, float]]:
    chosen = run_data.selected
    chosen = chosen[(chosen["arm"] == arm.name) & (chosen["seed"] == seed)]
    own = paths[paths["trial"].isin(chosen["trial"])].dropna(subset=["value"])
    if len(own) and cost != "cost/passes":
        spent = run_data.paths(cost).set_index(["trial", "step"])["value"]
        rows = zip(own["trial"], own["step"], own["value"], strict=True)
        known = ((spent.get((trial, step)), value) for trial, step, value in rows)
        return [(float(x), float(y)) for x, y in known if x is not None]
    if len(own):
        return list(zip(own["step"].astype(float), own["value"].astype(float), strict=True))
    ends = pd.DataFrame({"x": column(chosen, cost), "y": column(chosen, metric)}).dropna()
    return list(zip(ends["x"], ends["y"], strict=True))


def incumbents(
    run_data: RunData, arm: ArmCard, seed: int, metric: str, *, cost: str = "cost/passes"
) -> list[tuple[float, float]]:
    """Follow the best trial so far by validation: cost so far and its value, after each finish.

    The trials of a seed count as if they ran one after another.
    """
    trials = run_data.trials
    own = trials[(trials["arm"] == arm.name) & (trials["seed"] == seed)].sort_values("index")
    rule = schema.selection_metric(run_data.metadata.metric)
    rivals: dict[int, float | None] = {}
    values: dict[int, float] = {}
    bill, points = 0.0, []
    numbers = (column(own, cost).fillna(0.0), column(own, rule.name), column(own, metric))
    table = zip(own["index"], own["outcome"], *numbers, strict=True)
    for index, outcome, spent, score, value in table:
        bill += spent
        if outcome != "finished":
            continue
        rivals[index], values[index] = score, value
        best = best_index(rivals, rule)
        if best is None:
            continue
        if len(rivals) > 1:  # whoever lost once can never win later
            rivals = {best: rivals[best]}
        if not math.isnan(values[best]):
            points.append((bill, values[best]))
    return points


def leaders_bill(run_data: RunData, arm: str, seed: int, *, cost: str) -> float:
    """Return what all trials of an arm's leaders cost in a seed, or in the mean one without it."""
    total = 0.0
    for leader in run_data.metadata.leaders(arm):
        own = run_data.trials[run_data.trials["arm"] == leader]
        bills = column(own, cost).fillna(0.0).groupby(own["seed"]).sum()
        total += float(bills.get(seed, bills.mean() if len(bills) else 0.0))
    return total


def _caption(run_data: RunData, metric: str) -> str:
    text = f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}) against passes "
    text += f"({PASS_IN_SHORT}): mean over seeds, band one standard error."
    if any(arm.trials_per_seed > 1 for arm in run_data.metadata.arms):
        text += f" Arms that select show the best trial so far by {run_data.metadata.metric}, "
        text += "their trials counted one after another, failed ones included."
    if any(arm.follows for arm in run_data.metadata.arms):
        text += " Arms that follow another start where their leader's passes end."
    return text + focus_note(run_data.metadata)
