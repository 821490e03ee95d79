"""What trials drew from their spaces, and what came of it: parallel coordinates and slices."""

import math
import re
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, canvas, place
from tuneparts.results.figures.style import arm_styles, focus_note, visible
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.tables import label

MAX_PANELS = 12
_CLASSES = (
    ("worst fifth", "#8b95a7", 1.0),
    ("fourth fifth", "#7d8db3", 1.0),
    ("middle fifth", "#667db5", 1.0),
    ("second fifth", "#4a6fc0", 1.0),
    ("best fifth", "#D55E00", 3.0),
)
"""Name, colour and width of the lines of each fifth of the trials."""


def parallel(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a line per trial through what it drew, a panel per arm."""
    metric = metric or run_data.metadata.metric
    title = f"What trials drew, by {label(metric)}"
    data = _scored(run_data, metric)
    counts = data.groupby("arm")["name"].nunique()
    known = arm_styles(run_data.metadata)
    arms = [arm for arm in known if counts.get(arm, 0) > 1][:MAX_PANELS]
    if not arms:
        return Note(title, f"No arm with several dimensions has finished trials with {metric}.")
    figure = canvas(len(arms), [known[arm].name for arm in arms])
    for panel, arm in enumerate(arms):
        _add_parallel(figure, data[data["arm"] == arm], metric, panel, len(arms))
    caption = (
        "A line per finished trial through the values that it drew; each axis goes from the lowest "
        "to the highest of them, in the logarithm where the space has it. Colours are fifths of "
        f"the trials of an arm by {label(metric)}. A line without a dot on an axis passes by a "
        "dimension that its trial did not have."
    )
    return Drawing(title, figure, caption, data, min_width=560)


def slices(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a metric against each dimension of the spaces, a panel per dimension."""
    metric = metric or run_data.metadata.metric
    title = f"{label(metric).capitalize()} along each dimension"
    data = _scored(run_data, metric)
    if data.empty:
        return Note(title, f"No finished trial of an arm with a space has {metric}.")
    names = _ordered(data)
    shown = names[:MAX_PANELS]
    figure = canvas(len(shown), [escape(name, quote=False) for name in shown])
    styles, named = arm_styles(run_data.metadata), set[str]()
    for panel, name in enumerate(shown):
        where, rows = place(panel, len(shown)), data[data["name"] == name]
        for arm, own in rows.groupby("arm", sort=False):
            style = styles[str(arm)]
            figure.add_scatter(
                x=own["value"].tolist(),
                y=own["score"].tolist(),
                text=own["trial"].tolist(),
                name=style.name,
                legendgroup=style.name,
                showlegend=arm not in named,
                visible=visible(str(arm), run_data.metadata),
                mode="markers",
                marker=style.marker(7),
                opacity=0.8,
                hovertemplate="%{text}<br>%{x}: %{y:.4f}<extra></extra>",
                **where,
            )
            named.add(str(arm))
        kind = _axis(rows)
        is_log = kind == "log"
        figure.update_xaxes(type=kind, dtick="D2" if is_log else None, **where)
        figure.update_xaxes(title_text=_unit_of(name) + " (log scale)" * is_log, **where)
        if panel % 2 == 0:
            figure.update_yaxes(title_text=label(metric, arrow=True), **where)
    caption = f"{label(metric).capitalize()} of every finished trial against what it drew."
    if len(names) > len(shown):
        caption += f" {len(shown)} of {len(names)} dimensions are drawn; all are in the data."
    return Drawing(title, figure, caption + focus_note(run_data.metadata), data)


def _scored(run_data: RunData, metric: str) -> pd.DataFrame:
    """What finished trials drew, with their score."""
    done = run_data.trials[run_data.trials["outcome"] == "finished"]
    scores = pd.Series(column(done, metric).to_numpy(), index=done["trial"].to_numpy())
    scores = scores[np.isfinite(scores)]
    data = run_data.drawn[run_data.drawn["trial"].isin(scores.index)]
    return data.assign(score=data["trial"].map(scores)).reset_index(drop=True)


def _ordered(data: pd.DataFrame) -> list[str]:
    """The names of dimensions in the order of the spaces, each before what hangs on it."""
    places = data.groupby("name")["place"].min()
    return sorted(map(str, places.index), key=lambda name: (places[name], name))


def _short(name: str) -> str:
    """The last part of a name; of `optimiser[sgd].lr` what stands after the field."""
    field, bracket, rest = name.partition("[")
    return rest.replace("]", "") if bracket else field.rpartition(".")[2]


def _unit_of(name: str) -> str:
    """The short name of a dimension, with its unit where it is a hyper that has one."""
    short = _short(name)
    metric = schema.find(f"hyper/{short}") if re.fullmatch(r"[a-z_]+", short) else None
    return f"{short} ({metric.unit})" if metric is not None and metric.unit else short


def _is_numeric(values: pd.Series) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _axis(rows: pd.DataFrame) -> str:
    if not _is_numeric(rows["value"]):
        return "category"
    return "log" if rows["is_log"].any() and min(rows["value"]) > 0 else "linear"


def _add_parallel(
    figure: go.Figure, own: pd.DataFrame, metric: str, panel: int, num_panels: int
) -> None:
    where = place(panel, num_panels)
    names = _ordered(own)
    heights: dict[tuple[str, str], float] = {}
    for number, name in enumerate(names):
        rows = own[own["name"] == name]
        spread, ends = _heights(rows)
        heights |= {(trial, name): at for trial, at in zip(rows["trial"], spread, strict=True)}
        for at, end in ends:
            text = escape(end, quote=False)
            style = {"showarrow": False, "xanchor": "left", "xshift": 3, "font": {"size": 11}}
            figure.add_annotation(x=number, y=at, text=text, **style, **where)
    for fifth, trials in _fifths(own, metric).items():
        if not trials:
            continue
        x: list[float | None] = []
        y: list[float | None] = []
        for trial in trials:
            has = [number for number, name in enumerate(names) if (trial, name) in heights]
            x += [*has, None]
            y += [*(heights[trial, names[number]] for number in has), None]
        words, colour, width = _CLASSES[fifth]
        figure.add_scatter(
            x=x,
            y=y,
            name=words,
            legendgroup=words,
            showlegend=words not in {trace.name for trace in figure.data},
            mode="lines+markers",
            line={"color": colour, "width": width},
            marker={"size": 4},
            hoverinfo="skip",
            **where,
        )
    figure.update_xaxes(
        tickvals=list(range(len(names))),
        ticktext=[escape(_short(name), quote=False) for name in names],
        range=[-0.1, len(names) - 0.6],
        **where,
    )
    figure.update_yaxes(showticklabels=False, ticks="", range=[-0.08, 1.08], **where)


def _fifths(own: pd.DataFrame, metric: str) -> dict[int, list[str]]:
    """The trials of an arm in fifths by their score, the worst first."""
    scores = own.drop_duplicates("trial").set_index("trial")["score"]
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    ranked = scores.sort_values(ascending=not is_up, kind="stable").index.tolist()
    fifths: dict[int, list[str]] = {fifth: [] for fifth in range(len(_CLASSES))}
    for rank, trial in enumerate(ranked):  # from the best, so that few trials have a best fifth
        fifths[len(_CLASSES) - 1 - rank * len(_CLASSES) // len(ranked)].append(str(trial))
    return fifths


def _heights(rows: pd.DataFrame) -> tuple[list[float], list[tuple[float, str]]]:
    """Where values stand on an axis from 0 to 1, and what its ends or options are called."""
    values: list[Any] = rows["value"].tolist()
    if not _is_numeric(rows["value"]):
        options = list(dict.fromkeys(sorted(map(str, values))))
        places = {o: (i + 0.5) / len(options) for i, o in enumerate(options)}
        return [places[str(v)] for v in values], [(y, o) for o, y in places.items()]
    is_log = _axis(rows) == "log"
    numbers = [math.log(v) if is_log else float(v) for v in values]
    low, high = min(numbers), max(numbers)
    ends = [(0.0, f"{min(values):.3g}"), (1.0, f"{max(values):.3g}")]
    if high == low:
        return [0.5] * len(values), [(0.5, ends[0][1])]
    return [(v - low) / (high - low) for v in numbers], ends
