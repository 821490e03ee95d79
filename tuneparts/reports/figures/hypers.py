"""Learned hypers over passes: a line per seed of each arm, a panel per hyper."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts import schema
from tuneparts.reports.figures.drawing import Drawing, Note, canvas, counts_axis, place
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.tables import label

TITLE = "Hypers over passes"
MAX_PANELS = 8


def hypers(run_data: RunData) -> Drawing | Note:
    """Paths of the selected trials; what stays constant was given and is drawn dotted."""
    data = paths(run_data)
    if data.empty:
        return Note(TITLE, "No selected trial has reported a hyper.")
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
            figure.add_trace(
                go.Scatter(
                    x=line["passes"].tolist(),
                    y=line["value"].tolist(),
                    name=style.name,
                    legendgroup=str(arm),
                    showlegend=arm not in named,
                    mode="lines+markers" if len(line) == 1 else "lines",
                    line={
                        "color": style.colour,
                        "width": 2,
                        "dash": "dot" if is_given else style.dash,
                    },
                    hovertemplate=f"{style.name}, seed {seed}, {label(str(metric))}: %{{y:.3f}}"
                    "<br>%{x} passes<extra></extra>",
                ),
                **where,
            )
            named.add(str(arm))
        counts_axis(figure, "passes", own["passes"].tolist(), where)
    units = ", ".join(f"{label(s)}: {schema.lookup(s).meaning}" for s in shown)
    caption = (
        "Hypers of the selected trials against their own passes, a line per seed; dotted where "
        f"the value was given and stays; not drawn where it is a leader's. {units}."
    )
    if len(stems) > MAX_PANELS:
        caption += f" {len(stems) - MAX_PANELS} more hypers are in the data file only."
    return Drawing(
        TITLE, figure, caption, data.drop(columns="panel"), min_width=560 if len(shown) > 1 else 0
    )


def paths(run_data: RunData) -> pd.DataFrame:
    """Columns arm, seed, metric, passes, value, panel (the metric, or its family)."""
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
