"""Figures over cost: how good each arm is after so many steps, trials or bytes.

An arm with one trial per seed shows the score along that trial. An arm that selects shows the
score of the best trial so far by validation, after each finished trial, as if the trials of a
seed ran one after another; failed and stopped trials move it to the right. An arm with a
source arm starts where the cost of that one ends.
"""

import math
from collections.abc import Hashable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from tuneparts.core import schema, seeding
from tuneparts.core.glossary import STEP_IN_SHORT
from tuneparts.results.figures._style import arm_styles, focus_note, in_focus
from tuneparts.results.figures.drawing import Drawing, Look, Note, _Canvas, _spelled, means
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _seed_cost, column
from tuneparts.results.statistics import _expected_best_interval
from tuneparts.results.tables import label
from tuneparts.search.card import ArmCard

MOST_TRIALS = 40
"""Trials that `trials` draws of each arm, the newest; more lines than that are one blot."""
_MAX_PANELS = 8
_STEPS = "cost/steps"
_BEST_OF_N = "Expected best of n trials"
_SCHEDULES = "Schedules that populations found"


def accuracy(
    run_data: RunData, metric: str = "test/accuracy", cost: str = _STEPS
) -> Drawing | Note:
    """Draw a metric against cumulative cost, in steps, or `cost/seconds` of the run's machine."""
    metadata = run_data.metadata
    data = over_seeds(curves(run_data, metric, cost))
    spent = "steps" if cost == _STEPS else label(cost)
    is_usual = (metric, cost) == ("test/accuracy", _STEPS)
    title = "Accuracy against steps" if is_usual else f"{label(metric)} against {spent}"
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    canvas = _Canvas(metadata)
    for arm, own in canvas.arms(data):
        shape = step_shape(metadata.arm(arm))
        band, bounds = own.dropna(subset=["se"]), schema.lookup(metric).bounded(-math.inf, math.inf)
        edges = [(band["mean"] + sign * band["se"]).clip(*bounds) for sign in (1, -1)]
        canvas.band(arm, band["steps"], edges, shape=shape)
        canvas.add(arm, own["steps"], own["mean"], size=7, line={"shape": shape})
    canvas.counts_axis(spent, data["steps"])
    canvas.y_axis(label(metric, arrow=True))
    caption = f"{_spelled(metric)} against steps ({STEP_IN_SHORT}): mean over seeds, band one "
    caption += "standard error." + cost_note(run_data, "steps") + focus_note(metadata)
    if cost != _STEPS:
        machine = metadata.environment.get("machine", "a machine that is not recorded")
        caption += f" By {spent} instead of steps, on {machine}."
    return Drawing(title, canvas.figure, caption, data)


def cost_note(run_data: RunData, cost: str) -> str:
    """What a caption says of arms that select and of arms with a source arm."""
    arms, text = run_data.metadata.arms, ""
    if any(arm.trials_per_seed > 1 for arm in arms):
        text += f" Arms that select show the best trial so far by {run_data.metadata.metric}, "
        text += "and pay for all, failed ones included."
    if any(arm.source for arm in arms):
        text += f" Arms with a source arm start where the {cost} of that one end."
    return text


def step_shape(arm: ArmCard) -> str:
    """How plotly joins the points of an arm: in steps where it selects."""
    return "hv" if arm.trials_per_seed > 1 else "linear"


def curves(run_data: RunData, metric: str, cost: str = _STEPS) -> pd.DataFrame:
    """Return the score of each seed after so much cost (column steps, source arms included)."""
    rows, trials = [], run_data.trials
    paths = run_data.paths(metric).dropna(subset=["value"])
    paths = paths.assign(spent=paths["step"])
    if cost != _STEPS:
        costs = run_data.paths(cost)[["trial", "step", "value"]].rename(columns={"value": "spent"})
        paths = paths.drop(columns="spent").merge(costs, on=["trial", "step"])
    ends = run_data.selected
    ends = ends.assign(spent=column(ends, cost), value=column(ends, metric))
    for arm in run_data.metadata.arms:
        for seed in arm.seeds:
            start = 0.0
            for source in run_data.metadata.sources(arm.name):
                own = trials[trials["arm"] == source]
                sums = column(own, cost).fillna(0.0).groupby(own["seed"]).sum()
                start += float(sums.get(seed, sums.mean() if len(sums) else 0.0))
            if arm.trials_per_seed > 1:
                points = _incumbents(run_data, arm, seed, metric, cost)
            else:
                own = paths[(paths["arm"] == arm.name) & (paths["seed"] == seed)]
                if own.empty:
                    own = ends[(ends["arm"] == arm.name) & (ends["seed"] == seed)]
                known = own[["spent", "value"]].dropna().astype(float)
                points = list(known.itertuples(index=False, name=None))
            rows += [(arm.name, seed, start + spent, value) for spent, value in points]
    return pd.DataFrame(rows, columns=["arm", "seed", "steps", "value"])


def over_seeds(data: pd.DataFrame) -> pd.DataFrame:
    """Average curves over seeds; each seed holds its last value until its next.

    The first point is where every seed that has any value has one: no mean changes its seeds.
    """
    whole = []
    for arm, own in data.groupby("arm", sort=False):
        wide = own.pivot_table(index="steps", columns="seed", values="value", aggfunc="last")
        held = wide.sort_index().ffill().dropna().reset_index().melt("steps")
        whole.append(means(held.assign(arm=arm), ["arm", "steps"]))
    return pd.concat(whole, ignore_index=True) if whole else means(data, ["arm", "steps"])


def _incumbents(
    run_data: RunData, arm: ArmCard, seed: int, metric: str, cost: str
) -> list[tuple[float, float]]:
    """Follow the best trial so far by validation: cost so far and its value, after each finish."""
    trials = run_data.trials
    own = trials[(trials["arm"] == arm.name) & (trials["seed"] == seed)].sort_values("index")
    rule = schema.selection_metric(run_data.metadata.metric)
    rivals: dict[int, float | None] = {}
    points, values = [], dict(zip(own["index"], column(own, metric), strict=True))
    totals = column(own, cost).fillna(0.0).cumsum()
    table = zip(own["index"], own["outcome"], totals, column(own, rule.name), strict=True)
    for index, outcome, total, score in table:
        if outcome == "finished":
            best = schema.best_index(rivals | {index: score}, rule)
            if best is not None:
                rivals = {best: score if best == index else rivals[best]}  # the others have lost
                points += [] if math.isnan(values[best]) else [(total, values[best])]
    return points


def trials(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a line per trial, failed and running ones too; by default of the selection metric."""
    metadata = run_data.metadata
    metric = metric or metadata.metric
    title = f"{label(metric)} of each trial" if metric else "Trials"
    data = run_data.steps
    if not data.empty:
        rows = data[data["metric"] == metric].dropna(subset=["value"])
        rows = rows.sort_values(["arm", "seed", "index", "step"], kind="stable")
        each = rows.drop_duplicates("trial").sort_values(["time", "trial"], kind="stable")
        rows = rows[rows["trial"].isin(each.groupby("arm")["trial"].tail(MOST_TRIALS))]
        data = rows.rename(columns={"step": "steps"})[["arm", "trial", "steps", "value"]]
        data = data.reset_index(drop=True)
    if data.empty:
        return Note(title, f"No trial has reported {metric or 'anything'} yet.")
    canvas = _Canvas(metadata)
    for arm, own in canvas.arms(data):
        places: dict[str, list[Any]] = {"steps": [], "value": [], "trial": []}
        for _, line in own.groupby("trial", sort=False):
            for name, values in places.items():
                values += [*line[name].tolist(), None]  # a gap between two trials
        x, y, text = places.values()
        hover = "%{text}: %{y:.4f} at %{x} steps"
        canvas.add(arm, x, y, width=1.5, size=5, hover=hover, text=text, opacity=0.75)
    canvas.counts_axis("steps", data["steps"])
    canvas.y_axis(label(metric, arrow=True))
    caption = f"{label(metric).capitalize()} of each trial against its own steps."
    num_left_out = run_data.trials["trial"].nunique() - data["trial"].nunique()
    if num_left_out > 0 and data.groupby("arm")["trial"].nunique().max() == MOST_TRIALS:
        caption += f" The newest {MOST_TRIALS} trials of each arm are drawn."
    return Drawing(title, canvas.figure, caption + focus_note(metadata), data)


def schedule(run_data: RunData) -> Drawing | Note:
    """Draw the values under which weights of selected trials were trained, a panel per value."""
    data = run_data.schedules
    if not data.empty:
        data = data[data["trial"].isin(run_data.selected["trial"])]
        data = data[[isinstance(value, int | float) for value in data["value"]]]
    if data.empty:
        return Note(_SCHEDULES, "No selected trial has a value that changed on its way.")
    paths = list(dict.fromkeys(data["path"]))[:_MAX_PANELS]
    canvas = _Canvas(run_data.metadata, paths)
    for panel, path in enumerate(paths):
        own = data[data["path"] == path]
        for (arm, seed), line in own.groupby(["arm", "seed"], sort=False):
            name, steps = canvas.styles[arm].name, line["steps"].tolist()
            steps.append(max(run_data.metadata.arm(arm).steps, steps[-1]))
            values = [float(value) for value in line["value"]]
            hover = f"{name}, seed {seed}: %{{y:.4g}}<br>%{{x}} steps"
            look: Look = {"mode": "lines", "width": 2, "line": {"shape": "hv"}, "hover": hover}
            canvas.add(arm, steps, [*values, values[-1]], panel=panel, **look)
        canvas.counts_axis("steps", own["steps"], panel=panel)
    caption = (
        "Values under which the weights of the selected trials were trained, a line per seed, back "
        "through the trials that they were copied from."
    )
    return Drawing(_SCHEDULES, canvas.figure, caption, data.reset_index(drop=True))


def best_of_n(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw the expected score of the best of n trials, and mark the arms with one trial per seed.

    A mark is at the n at which the curve reaches that arm's score; see `results.statistics`.
    """
    metadata, data = run_data.metadata, expected_best(run_data, metric)
    if data.empty:
        return Note(_BEST_OF_N, f"No arm has several finished trials per seed with {metric}.")
    equals = equivalents(run_data, metric, data)
    arms = list(dict.fromkeys(data["arm"]))
    styles = arm_styles(metadata)
    canvas = _Canvas(metadata, [f"best of n: {styles[arm].name}" for arm in arms])
    for panel, arm in enumerate(arms):
        own = data[data["arm"] == arm]
        canvas.band(arm, own["n"], [own["high"], own["low"]], panel=panel)
        look: Look = {"mode": "lines", "in_legend": False, "visible": True}
        canvas.add(arm, own["n"], own["mean"], panel=panel, **look)
        for row in equals[equals["against"] == arm].to_dict("records"):
            style, is_reached = styles[row["arm"]], not np.isnan(row["trials"])
            symbol, hover = style.symbol, f"{style.name}: {_count(row)}"
            marker: Look = {"symbol": symbol if is_reached else f"{symbol}-open"}
            marker["line"] = {"width": 2, "color": style.colour}
            look = {"mode": "markers", "size": 12, "marker": marker, "hover": hover}
            look["name"] = hover if len(arms) == 1 else style.name
            x = row["trials"] if is_reached else len(own)
            canvas.add(row["arm"], [x], [row["score"]], panel=panel, **look)
        last = int(own["n"].max())
        ticks = {"dtick": 1} if last <= 12 else {}
        canvas.x_axis("n (trials)", panel=panel, range=[1 - last / 40, last * 1.04], **ticks)
        canvas.y_axis(label(metric, arrow=True), panel=panel)
    caption = (
        f"Lines: expected {label(metric)} of the best of n trials by {metadata.metric}, averaged "
        "over seeds; band: bootstrap interval over trials, nominally 95 %, in simulations 85 to "
        "95 % on the left and 67 to 78 % at the right end. Marks: arms with one trial per seed "
        "where the line first reaches them, open where it never does; intervals are over seeds."
    )
    shown = in_focus(metadata)
    worth = "; ".join(
        f"{styles[str(arm)].name} is worth {', '.join(map(_count, own.to_dict('records')))}"
        for arm, own in equals.groupby("arm", sort=False)
        if arm in shown
    )
    caption += (f" {worth}." if worth else "") + focus_note(metadata)
    data = pd.concat([data.assign(kind="curve"), equals.assign(kind="equivalent")])
    data = data.reset_index(drop=True)
    return Drawing(_BEST_OF_N, canvas.figure, caption, data, canvas.min_width)


def _count(row: Mapping[Hashable, Any]) -> str:
    interval = f" ({row['interval']})" if row["interval"] else ""
    plural = "s" if row["trials"] != 1 else ""
    return f"{row['says']} {escape(row['against'])} trial{plural}{interval}"


def expected_best(run_data: RunData, metric: str) -> pd.DataFrame:
    """The expected best of n trials for each arm that draws independently, and their cost."""
    rows = []
    for arm in run_data.metadata.arms:
        if arm.trials_per_seed == 1 or arm.is_adaptive:
            continue
        rule = schema.selection_metric(run_data.metadata.metric)
        own = run_data.trials[run_data.trials["arm"] == arm.name].sort_values("index")
        scored = own[own["outcome"] == "finished"]
        scored = scored.assign(val=column(scored, rule.name), test=column(scored, metric))
        scored = scored.dropna(subset=["val", "test"])
        if scored.empty:
            continue
        seeds = [(p["val"].to_numpy(), p["test"].to_numpy()) for _, p in scored.groupby("seed")]
        generator = seeding.numpy_generator(0, "reports", "best_of_n", arm.name)
        is_up = rule.direction is schema.Direction.UP
        mean, low, high = _expected_best_interval(seeds, generator, larger_is_better=is_up)
        # Failed and stopped trials are part of what a usable trial costs.
        each = column(own, _STEPS).sum() / len(scored)
        for n, values in enumerate(zip(mean, low, high, strict=True), start=1):
            rows.append((arm.name, n, n * each, *map(float, values)))
    return pd.DataFrame(rows, columns=["arm", "n", "steps", "mean", "low", "high"])


def equivalents(run_data: RunData, metric: str, data: pd.DataFrame) -> pd.DataFrame:
    """Return how many trials of each selecting arm match each arm with one trial per seed.

    Arms whose source arm selects are left out: their cost includes all of its trials. `data`
    is that of `expected_best`; `trials` are NaN when the score is never reached.
    """
    rows, metadata = [], run_data.metadata
    several = {arm.name for arm in metadata.arms if arm.trials_per_seed > 1}
    scores = dict(zip(run_data.summary["arm"], column(run_data.summary, metric), strict=True))
    for against, own in data.groupby("arm", sort=False):
        for arm in metadata.arms:
            score, paid = scores[arm.name], [arm.name, *metadata.sources(arm.name)]
            if several.intersection(paid) or np.isnan(score):
                continue
            worth = run_data.worth(arm.name, str(against), metric)
            if worth is None:
                continue
            spent = _seed_cost(run_data.trials, paid, _STEPS)
            num = float("nan") if worth.trials is None else float(worth.trials)
            steps = num * float(own["steps"].iloc[0])
            rows.append((arm.name, score, spent, against, num, steps, worth.says, worth.interval))
    names = ["arm", "score", "own_steps", "against", "trials", "steps", "says", "interval"]
    return pd.DataFrame(rows, columns=names)
