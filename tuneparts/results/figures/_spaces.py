"""What trials drew from their spaces and what came of it; trials between several objectives.

Optuna's parallel coordinates leave out every trial that lacks a dimension, and its slices and
fronts are of one study; ours keep such trials, and set arms and seeds next to each other.
"""

import math
import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures._style import arm_styles, focus_note
from tuneparts.results.figures.drawing import Drawing, Look, Note, _Canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _members, column
from tuneparts.results.tables import label

if TYPE_CHECKING:
    from optuna import Study

_MAX_PANELS = 12
_FIFTHS = (
    ("worst fifth", "#8b95a7", 1.0),
    ("fourth fifth", "#7d8db3", 1.0),
    ("middle fifth", "#667db5", 1.0),
    ("second fifth", "#4a6fc0", 1.0),
    ("best fifth", "#D55E00", 3.0),
)
"""Name, colour and width of the lines of each fifth of the trials."""
_FEWEST = 8
"""Finished trials of an arm from which on importances are computed."""
_MOST = 512
"""Trials of an arm that the forest is fitted to, the first ones; it takes long for more."""


def parallel(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a line per trial through what it drew, a panel per arm."""
    metric = metric or run_data.metadata.metric
    title = f"What trials drew, by {label(metric)}"
    data, styles = _scored(run_data, metric), arm_styles(run_data.metadata)
    counts = data.groupby("arm")["name"].nunique()
    arms = [arm for arm in styles if counts.get(arm, 0) > 1][:_MAX_PANELS]
    if not arms:
        return Note(title, f"No arm with several dimensions has finished trials with {metric}.")
    canvas = _Canvas(run_data.metadata, [styles[arm].name for arm in arms])
    for panel, arm in enumerate(arms):
        _add_parallel(canvas, data[data["arm"] == arm], metric, panel)
    caption = (
        "A line per finished trial through the values that it drew, coloured by fifths of the "
        f"trials of an arm by {label(metric)}. A line without a dot on an axis passes by a "
        "dimension that its trial did not have."
    )
    return Drawing(title, canvas.figure, caption, data, min_width=560)


def _add_parallel(canvas: _Canvas, own: pd.DataFrame, metric: str, panel: int) -> None:
    names, where = _ordered(own), canvas.where(panel)
    points: dict[str, list[tuple[int, float]]] = {}  # by trial
    style = {"showarrow": False, "xanchor": "left", "xshift": 3, "font": {"size": 11}, **where}
    for number, name in enumerate(names):
        rows = own[own["name"] == name]
        heights, ends = _heights(rows)
        for trial, height in zip(rows["trial"], heights, strict=True):
            points.setdefault(trial, []).append((number, height))
        for at, end in ends:
            text = escape(end, quote=False)
            canvas.figure.add_annotation(x=number, y=at, text=text, **style)
    scores = own.drop_duplicates("trial").set_index("trial")["score"]
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    ranked = scores.sort_values(ascending=not is_up, kind="stable").index.tolist()
    best_first = np.arange(len(ranked)) * len(_FIFTHS) // len(ranked)  # so that there is a best one
    for fifth, (words, colour, width) in enumerate(_FIFTHS):
        chosen = [ranked[i] for i in np.flatnonzero(best_first == len(_FIFTHS) - 1 - fifth)]
        places = [place for trial in chosen for place in (*points[trial], (None, None))]
        if places:
            x, y = map(list, zip(*places, strict=True))
            is_first = words not in {trace.name for trace in canvas.figure.data}
            canvas.figure.add_scatter(
                x=x, y=y, name=words, legendgroup=words, showlegend=is_first, hoverinfo="skip",
                mode="lines+markers", line={"color": colour, "width": width}, marker={"size": 4},
                **where,
            )  # fmt: skip
    ticks = {i: escape(_short(name), quote=False) for i, name in enumerate(names)}
    look: Look = {"tickvals": list(ticks), "ticktext": list(ticks.values())}
    canvas.x_axis(panel=panel, range=[-0.1, len(names) - 0.6], **look)
    canvas.y_axis(panel=panel, showticklabels=False, ticks="", range=[-0.08, 1.08])


def _heights(rows: pd.DataFrame) -> tuple[list[float], list[tuple[float, str]]]:
    """Places of values on an axis from 0 to 1, and what its ends or options are called."""
    values: list[Any] = rows["value"].tolist()
    kind = _axis(rows)
    if kind == "category":
        options = sorted({str(value) for value in values})
        places = {o: (i + 0.5) / len(options) for i, o in enumerate(options)}
        return [places[str(v)] for v in values], [(y, o) for o, y in places.items()]
    numbers = [math.log(v) if kind == "log" else float(v) for v in values]
    low, high = min(numbers), max(numbers)
    if high == low:
        return [0.5] * len(values), [(0.5, f"{values[0]:.3g}")]
    ends = [(0.0, f"{min(values):.3g}"), (1.0, f"{max(values):.3g}")]
    return [(v - low) / (high - low) for v in numbers], ends


def slices(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a metric against each dimension of the spaces, a panel per dimension."""
    metric = metric or run_data.metadata.metric
    title, data = f"{label(metric).capitalize()} along each dimension", _scored(run_data, metric)
    if data.empty:
        return Note(title, f"No finished trial of an arm with a space has {metric}.")
    names = _ordered(data)
    shown = names[:_MAX_PANELS]
    canvas = _Canvas(run_data.metadata, [escape(name, quote=False) for name in shown])
    look: Look = {"mode": "markers", "size": 7, "opacity": 0.8}
    look["hover"] = "%{text}<br>%{x}: %{y:.4f}"
    for panel, name in enumerate(shown):
        rows = data[data["name"] == name]
        for arm, own in canvas.arms(rows):
            text = own["trial"].tolist()
            canvas.add(arm, own["value"], own["score"], panel=panel, text=text, **look)
        kind, words = _axis(rows), _short(name)
        hyper = schema.find(f"hyper/{words}") if re.fullmatch(r"[a-z_]+", words) else None
        words += f" ({hyper.unit})" if hyper is not None and hyper.unit else ""
        words, ticks = (f"{words} (log scale)", "D2") if kind == "log" else (words, None)
        canvas.x_axis(words, panel=panel, type=kind, dtick=ticks)
        if canvas.where(panel)["col"] == 1:
            canvas.y_axis(label(metric, arrow=True), panel=panel)
    caption = f"{label(metric).capitalize()} of every finished trial against what it drew."
    if len(names) > len(shown):
        caption += f" {len(shown)} of {len(names)} dimensions are drawn; all are in the data."
    return Drawing(title, canvas.figure, caption + focus_note(run_data.metadata), data)


def _scored(run_data: RunData, metric: str) -> pd.DataFrame:
    """What finished trials drew, with their score."""
    done = run_data.trials[run_data.trials["outcome"] == "finished"]
    scores = pd.Series(column(done, metric).to_numpy(), index=done["trial"].to_numpy())
    scores = scores[np.isfinite(scores)]
    data = run_data.drawn[run_data.drawn["trial"].isin(scores.index)]
    return data.assign(score=data["trial"].map(scores)).reset_index(drop=True)


def _ordered(data: pd.DataFrame) -> list[str]:
    """The names of dimensions in the order of the spaces, each before what depends on it."""
    places = data.groupby("name")["place"].min()
    return sorted(map(str, places.index), key=lambda name: (places[name], name))


def _short(name: str) -> str:
    """The last part of a name; of `optimiser[sgd].lr` what is after the field."""
    field, bracket, rest = name.partition("[")
    return rest.replace("]", "") if bracket else field.rpartition(".")[2]


def _axis(rows: pd.DataFrame) -> str:
    values = rows["value"].tolist()
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return "category"
    return "log" if rows["is_log"].any() and min(values) > 0 else "linear"


def importance(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw the share of the variance of a metric that each dimension explains, a bar per arm."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    metric = metric or run_data.metadata.metric
    title, styles = f"What matters for {label(metric)}", arm_styles(run_data.metadata)
    scored = _scored(run_data, metric)
    forest = optuna.importance.FanovaImportanceEvaluator(n_trees=32, seed=0)
    canvas, rows = _Canvas(run_data.metadata), list[tuple[str, str, float, int]]()
    for arm, style in styles.items():
        study = _study(scored[scored["arm"] == arm], arm, metric)
        if study is None:
            continue
        (bars,) = optuna.visualization.plot_param_importances(study, evaluator=forest).data
        bars.update(name=style.name, marker={"color": style.colour}, text=None, showlegend=True)
        bars.update(hovertemplate="%{y}: %{x:.2f}<extra></extra>")
        canvas.figure.add_trace(bars)
        shares = zip(reversed(bars.y), reversed(bars.x), strict=True)
        rows += [(arm, name, float(share), len(study.trials)) for name, share in shares]
    if not rows:
        why = f"{_FEWEST} finished trials with {metric}, which varies, and two dimensions"
        return Note(title, f"No arm has {why}.")
    data = pd.DataFrame(rows, columns=["arm", "dimension", "share", "trials"])
    names = data.groupby("dimension")["share"].max().sort_values().index.tolist()
    height = max(240, 130 + 30 * len(names) * data["arm"].nunique())
    canvas.figure.update_layout(barmode="group", height=height)
    canvas.x_axis("share of the variance explained", rangemode="tozero")
    canvas.y_axis(type="category", categoryorder="array", categoryarray=names)
    caption = (
        f"Share of the variance of {label(metric)} over the space that each dimension explains by "
        "itself, by a random forest fitted to all finished trials of an arm (fANOVA, Hutter et al. "
        "2014). Trials of an adaptive arm crowd where it looked, which affects its shares."
    )
    return Drawing(title, canvas.figure, caption, data)


def _study(own: pd.DataFrame, arm: str, metric: str) -> "Study | None":
    """The trials of an arm as Optuna has them, with the dimensions that all of them have."""
    import optuna
    from optuna import distributions as kinds

    scores = own.drop_duplicates("trial").set_index("trial")["score"]
    if len(scores) < _FEWEST or scores.nunique() < 2:
        return None
    table = own.pivot_table(index="trial", columns="name", values="value", aggfunc="first")
    table = table.dropna(axis=1).head(_MOST)
    table = table[[name for name in table if table[name].nunique() > 1]]
    if table.shape[1] < 2:
        return None
    dimensions: dict[str, kinds.BaseDistribution] = {}
    for name in map(str, table):
        values, kind = table[name].tolist(), _axis(own[own["name"] == name])
        if kind == "category":
            table[name] = [str(value) for value in values]
            dimensions[name] = kinds.CategoricalDistribution(sorted(set(table[name])))
        else:
            low, high = float(min(values)), float(max(values))
            dimensions[name] = kinds.FloatDistribution(low, high, log=kind == "log")
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    study = optuna.create_study(study_name=arm, direction="maximize" if is_up else "minimize")
    for trial, params in table.iterrows():
        drawn = {"params": params.to_dict(), "distributions": dimensions}
        study.add_trial(optuna.create_trial(value=float(scores[str(trial)]), **drawn))
    return study


def pareto(run_data: RunData) -> Drawing | Note:
    """Draw every trial by its objectives, the front of each seed, and the selected trials."""
    title, metadata = "Pareto fronts", run_data.metadata
    names = list(metadata.objectives)
    if not names:
        return Note(title, "The search has one objective. Give it several as `objectives`.")
    data = _members(run_data.trials, metadata)
    if data.empty:
        return Note(title, f"No finished trial has all of {', '.join(names)} yet.")
    data = data.assign(selected=data["trial"].isin(run_data.selected.get("trial", ())))
    data = data.sort_values("on_front", ascending=False, kind="stable")  # the legend has the first
    canvas = _Canvas(metadata, num_panels=len(names) - 1)
    for panel, other in enumerate(names[1:]):
        for arm, own in canvas.arms(data):
            _add_front(canvas, arm, own, (other, names[0]), panel)
        canvas.counts_axis(label(other, arrow=True), data[other], panel=panel)
        canvas.y_axis(label(names[0], arrow=True), panel=panel)
    lines = ", with a line through the front of each seed" if len(names) == 2 else ""
    caption = (
        "Every finished trial by its objectives; filled where no other trial of its arm and seed "
        f"dominates it{lines}. Rings: {metadata.rule.words(metadata.weighed)}, of each seed."
    )
    if left_out := int((run_data.trials["outcome"] == "finished").sum()) - len(data):
        caption += f" {left_out} finished trials lack an objective and are left out."
    return Drawing(title, canvas.figure, caption, data)


def _add_front(
    canvas: _Canvas, arm: str, own: pd.DataFrame, pair: tuple[str, str], panel: int
) -> None:
    """The trials of one arm, the staircase of each seed where a front is a line, and the rings."""
    x, y = pair
    shared: Look = {"panel": panel, "visible": True}
    quiet: Look = {**shared, "in_legend": False, "hoverinfo": "skip"}
    is_on, symbol = own["on_front"], canvas.styles[arm].symbol
    marks: Look = {"symbol": is_on.map({True: symbol, False: f"{symbol}-open"}).tolist()}
    marks["opacity"] = is_on.map({True: 1.0, False: 0.55}).tolist()
    hover, names = "%{text}<br>%{x}, %{y:.4f}", own["trial"].tolist()
    look: Look = {"mode": "markers", "marker": marks, "text": names, "hover": hover, **shared}
    canvas.add(arm, own[x], own[y], **look)
    if canvas.num_panels == 1:
        shape = "hv" if schema.lookup(x).direction is schema.Direction.DOWN else "vh"
        line: Look = {"mode": "lines", "width": 1.5, "line": {"shape": shape}, **quiet}
        for _, seed in own[is_on].sort_values(x).groupby("seed"):
            canvas.add(arm, seed[x], seed[y], **line)
    rings, ring = own[own["selected"]], {"symbol": "circle-open", "line": {"width": 2}}
    canvas.add(arm, rings[x], rings[y], mode="markers", size=17, marker=ring, **quiet)
