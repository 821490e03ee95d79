"""Figures of hypers: their paths over passes, and their values against the test score.

The second has the panels of Mlodozeniec et al. (2023, Figure 9): small marks are trials of arms
that draw many; large ones are arms with one trial per seed, with the path that led there where
the score was taken along the way.
"""

import pandas as pd
import plotly.graph_objects as go

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, canvas, counts_axis, place
from tuneparts.results.figures.style import ArmStyle, arm_styles, focus_note, visible
from tuneparts.results.run_data import RunData
from tuneparts.results.select import reported
from tuneparts.results.tables import label
from tuneparts.search.card import ArmCard, RunCard

OVER_PASSES = "Hypers over passes"
MAX_PANELS = 8


def hypers(run_data: RunData) -> Drawing | Note:
    """Draw the hypers of the selected trials over passes, a panel per hyper and a line per seed.

    A value that stays constant was given, not learned, and is drawn dotted.
    """
    data = paths(run_data)
    if data.empty:
        return Note(OVER_PASSES, "No selected trial has reported a hyper.")
    stems = list(dict.fromkeys(data["panel"]))
    shown = stems[:MAX_PANELS]
    figure = canvas(len(shown), [label(stem) for stem in shown])
    known = arm_styles(run_data.metadata)
    followers = {arm.name for arm in run_data.metadata.arms if arm.follows is not None}
    named: set[str] = set()
    for panel, stem in enumerate(shown):
        where = place(panel, len(shown))
        own = data[data["panel"] == stem]
        for (arm, seed, metric), line in own.groupby(["arm", "seed", "metric"], sort=False):
            style = known[str(arm)]
            is_given = line["value"].nunique() == 1
            if is_given and arm in followers:
                continue  # its leader's value
            figure.add_scatter(
                x=line["passes"].tolist(),
                y=line["value"].tolist(),
                name=style.name,
                legendgroup=str(arm),
                showlegend=arm not in named,
                visible=visible(str(arm), run_data.metadata),
                mode="lines+markers",
                marker={"symbol": style.symbol, "size": 7, "maxdisplayed": 6},
                line=style.line(2) | ({"dash": "dot"} if is_given else {}),
                hovertemplate=f"{style.name}, seed {seed}, {label(str(metric))}: %{{y:.3f}}"
                "<br>%{x} passes<extra></extra>",
                **where,
            )
            named.add(str(arm))
        counts_axis(figure, "passes", own["passes"].tolist(), where)
        figure.update_yaxes(title_text=_unit(stem), **where)
        _add_truth(figure, run_data.metadata, stem, where, axis="y")
    units = ", ".join(f"{label(s)}: {schema.lookup(s).meaning}" for s in shown)
    caption = (
        "Hypers of the selected trials against their own passes, a line per seed; dotted where "
        f"the value was given and stays; not drawn where it is a leader's. {units}."
    )
    if len(stems) > MAX_PANELS:
        caption += f" {len(stems) - MAX_PANELS} more hypers are in the data file only."
    caption += _truth_note(run_data) + focus_note(run_data.metadata)
    width, table = 560 if len(shown) > 1 else 0, data.drop(columns="panel")
    return Drawing(OVER_PASSES, figure, caption, table, min_width=width)


def paths(run_data: RunData) -> pd.DataFrame:
    """Return the hypers of the selected trials at each report.

    Columns: arm, seed, metric, passes, value, panel (the metric, or its family).
    """
    order = {arm.name: position for position, arm in enumerate(run_data.metadata.arms)}
    names = [] if run_data.steps.empty else run_data.steps["metric"].unique().tolist()
    metrics = sorted(name for name in names if name.startswith("hyper/"))
    metrics.sort(key=lambda name: list(schema.METRICS).index(schema.lookup(name).name))
    rows = [run_data.paths(metric).assign(panel=schema.lookup(metric).name) for metric in metrics]
    columns = ["arm", "seed", "metric", "passes", "value", "panel"]
    if not rows:
        return pd.DataFrame(columns=columns)
    data = pd.concat(rows).rename(columns={"step": "passes"})
    ranks = data.assign(rank=data["arm"].map(order), turn=data["metric"].map(metrics.index))
    return ranks.sort_values(["turn", "rank", "seed", "passes"])[columns].reset_index(drop=True)


def projections(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw the score of every finished trial against each hyper that differs between trials."""
    title = f"Hypers against {metric.partition('/')[2]}"
    trials = run_data.trials[run_data.trials["outcome"] == "finished"]
    names = [
        name
        for name in reported(trials, run_data.metadata)
        if name.startswith("hyper/") and trials[name].nunique() > 1
    ]
    if metric not in trials or trials[metric].notna().sum() == 0 or not names:
        return Note(title, f"No finished trials with {metric} and a hyper that varies.")
    shown = names[:MAX_PANELS]
    figure = canvas(len(shown), [])
    known = arm_styles(run_data.metadata)
    # The ends decide what is seen: paths start far below and would flatten them.
    low, high = float(trials[metric].min()), float(trials[metric].max())
    reach = [low - 0.1 * (high - low), high + 0.1 * (high - low)] if high > low else None
    for panel, name in enumerate(shown):
        where = place(panel, len(shown))
        for arm in run_data.metadata.arms:
            own = trials[trials["arm"] == arm.name].dropna(subset=[name, metric])
            if own.empty:
                continue
            lines = _paths(run_data, own, name, metric) if arm.trials_per_seed == 1 else []
            marks = _points(own, arm, known[arm.name], name=name, metric=metric, is_first=not panel)
            for trace in [*(_path(line, known[arm.name], arm.name) for line in lines), marks]:
                trace.visible = visible(arm.name, run_data.metadata)
                figure.add_trace(trace, **where)
        figure.update_xaxes(title_text=label(name), **where)
        figure.update_yaxes(range=reach, **where)
        _add_truth(figure, run_data.metadata, name, where, axis="x")
        if where["col"] == 1:
            figure.update_yaxes(title_text=label(metric, arrow=True), **where)
    caption = (
        f"{label(metric).capitalize()} of every finished trial against the value of each hyper at "
        "its end; the other hypers differ too. Large marks: arms with one trial per seed, with "
        "the path they took, from below, where the score was taken on the way."
    )
    if len(names) > MAX_PANELS:
        caption += f" {len(names) - MAX_PANELS} more hypers are in the data file only."
    caption += _truth_note(run_data) + focus_note(run_data.metadata)
    data = trials[["run_id", "trial", "arm", "seed", "index", *names, metric]]
    width = 560 if len(shown) > 1 else 0
    return Drawing(title, figure, caption, data.reset_index(drop=True), min_width=width)


def _unit(stem: str) -> str:
    """The unit of a hyper; of one that is a plain number what it measures."""
    metric = schema.lookup(stem)
    return metric.unit or metric.meaning


def _add_truth(
    figure: go.Figure, metadata: RunCard, metric: str, where: dict[str, int], *, axis: str
) -> None:
    """Draw a dashed line at the true value of a hyper, where the data was made with one.

    `axis` is `x` or `y`, which has the hyper.
    """
    value = metadata.truth.get(metric)
    if value is None:
        return
    line = {"dash": "longdash", "width": 1.5, "color": "#7f868d"}
    note = {"annotation_text": f"true value {value:.3g}"}
    if axis == "y":
        figure.add_hline(y=value, line=line, annotation_position="bottom right", **note, **where)
    else:
        figure.add_vline(x=value, line=line, annotation_position="top left", **note, **where)


def _truth_note(run_data: RunData) -> str:
    return " The dashed line is the value that the data was made with." * bool(
        run_data.metadata.truth
    )


def _points(
    own: pd.DataFrame, arm: ArmCard, style: ArmStyle, *, name: str, metric: str, is_first: bool
) -> go.Scatter:
    is_many = arm.trials_per_seed > 1
    return go.Scatter(
        x=own[name].tolist(),
        y=own[metric].tolist(),
        name=style.name,
        legendgroup=arm.name,
        showlegend=is_first,
        mode="markers",
        marker=style.marker(
            7 if is_many else 12,
            opacity=0.75 if is_many else 1.0,
            line={"width": 0 if is_many else 1, "color": "white"},
        ),
        text=own["seed"].astype(str).tolist(),
        hovertemplate=f"{style.name}, seed %{{text}}<br>%{{x:.3f}}: %{{y:.4f}}<extra></extra>",
    )


def _path(line: pd.DataFrame, style: ArmStyle, arm: str) -> go.Scatter:
    return go.Scatter(
        x=line["x"].tolist(),
        y=line["y"].tolist(),
        mode="lines",
        line=style.line(1.5),
        legendgroup=arm,
        showlegend=False,
        hoverinfo="skip",
    )


def _paths(run_data: RunData, own: pd.DataFrame, name: str, metric: str) -> list[pd.DataFrame]:
    """Return hyper (x) and score (y) along each trial in which the hyper moved."""
    steps = run_data.steps
    if steps.empty:
        return []
    steps = steps[steps["trial"].isin(own["trial"]) & steps["metric"].isin([name, metric])]
    wide = steps.pivot_table(index=["trial", "step"], columns="metric", values="value")
    if name not in wide or metric not in wide:
        return []
    wide = wide.dropna().rename(columns={name: "x", metric: "y"})
    lines = [line for _, line in wide.groupby(level="trial")]
    return [line for line in lines if line["x"].nunique() > 1]
