"""Figures of hyperparameters: their paths over steps, against a score, and what they do.

`projections` has the panels of Mlodozeniec et al. (2023, Figure 9).
"""

import base64
import io

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from tuneparts.core import schema
from tuneparts.results.figures._style import arm_styles, focus_note, in_focus
from tuneparts.results.figures.drawing import Drawing, Look, Note, _Canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _reported
from tuneparts.results.tables import label, number

MAX_PANELS = 8
_GREY = "#7f868d"


def hypers(run_data: RunData) -> Drawing | Note:
    """Draw the hyperparameters of selected trials over steps: a panel each, a line per seed."""
    title, metadata = "Hyperparameters over steps", run_data.metadata
    data = _paths(run_data)
    if data.empty:
        return Note(title, "No selected trial has reported a hyperparameter.")
    stems = list(dict.fromkeys(data["panel"]))
    shown = stems[:MAX_PANELS]
    canvas = _Canvas(metadata, [label(stem) for stem in shown])
    sourced = {arm.name for arm in metadata.arms if arm.source is not None}
    for panel, stem in enumerate(shown):
        own = data[data["panel"] == stem]
        for (arm, seed, metric), line in own.groupby(["arm", "seed", "metric"], sort=False):
            is_given = line["value"].nunique() == 1
            if is_given and arm in sourced:
                continue  # the value of its source arm
            name = f"{canvas.styles[arm].name}, seed {seed}, {label(metric)}"
            look: Look = {"width": 2, "size": 7, "marker": {"maxdisplayed": 6}}
            look |= {"line": {"dash": "dot"}} if is_given else {}
            look["hover"] = f"{name}: %{{y:.3f}}<br>%{{x}} steps"
            canvas.add(arm, line["steps"], line["value"], panel=panel, **look)
        canvas.counts_axis("steps", own["steps"], panel=panel)
        canvas.y_axis(schema.lookup(stem).unit or schema.lookup(stem).meaning, panel=panel)
        if stem in metadata.truth:
            _add_truth(canvas, panel, metadata.truth[stem], y=metadata.truth[stem])
    units = ", ".join(f"{label(stem)}: {schema.lookup(stem).meaning}" for stem in shown)
    caption = (
        "Hyperparameters of the selected trials against steps, a line per seed; dotted where "
        f"the value was given and stays; not drawn where it comes from a source arm. {units}."
    )
    caption += _notes(run_data, len(stems))
    return Drawing(title, canvas.figure, caption, data.drop(columns="panel"), canvas.min_width)


def _paths(run_data: RunData) -> pd.DataFrame:
    """Hyperparameters of selected trials at each report; a metric or its family is a `panel`."""
    order = {arm.name: position for position, arm in enumerate(run_data.metadata.arms)}
    names = [] if run_data.steps.empty else run_data.steps["metric"].unique().tolist()
    metrics = sorted(name for name in names if name.startswith("hyper/"))
    metrics.sort(key=lambda name: list(schema.METRICS).index(schema.lookup(name).name))
    rows = [run_data.paths(metric).assign(panel=schema.lookup(metric).name) for metric in metrics]
    columns = ["arm", "seed", "metric", "steps", "value", "panel"]
    if not rows:
        return pd.DataFrame(columns=columns)
    data = pd.concat(rows).rename(columns={"step": "steps"})
    ranks = data.assign(rank=data["arm"].map(order), turn=data["metric"].map(metrics.index))
    return ranks.sort_values(["turn", "rank", "seed", "steps"])[columns].reset_index(drop=True)


def projections(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw the score of every finished trial against each hyperparameter that differs."""
    title, metadata = f"Hyperparameters against {metric.partition('/')[2]}", run_data.metadata
    trials = run_data.trials[run_data.trials["outcome"] == "finished"]
    names = [name for name in _reported(trials, metadata) if name.startswith("hyper/")]
    names = [name for name in names if trials[name].nunique() > 1]
    if metric not in trials or trials[metric].notna().sum() == 0 or not names:
        return Note(title, f"No finished trials with {metric} and a hyperparameter that varies.")
    shown = names[:MAX_PANELS]
    canvas = _Canvas(metadata, num_panels=len(shown))
    # The ends decide what is seen: paths start far below and would flatten them.
    low, high = float(trials[metric].min()), float(trials[metric].max())
    reach = [low - 0.1 * (high - low), high + 0.1 * (high - low)] if high > low else None
    for panel, name in enumerate(shown):
        for arm, own in canvas.arms(trials.dropna(subset=[name, metric])):
            is_many = metadata.arm(arm).trials_per_seed > 1
            for line in [] if is_many else _moved(run_data, own, name, metric):
                look: Look = {"mode": "lines", "width": 1.5, "hoverinfo": "skip"}
                canvas.add(arm, line[name], line[metric], panel=panel, in_legend=False, **look)
            size, opacity, edge = (7, 0.75, 0) if is_many else (12, 1.0, 1)
            marker = {"opacity": opacity, "line": {"width": edge, "color": "white"}}
            look = {"mode": "markers", "size": size, "marker": marker, "in_legend": panel == 0}
            look["text"] = own["seed"].astype(str).tolist()
            look["hover"] = f"{canvas.styles[arm].name}, seed %{{text}}<br>%{{x:.3f}}: %{{y:.4f}}"
            canvas.add(arm, own[name], own[metric], panel=panel, **look)
        canvas.x_axis(label(name), panel=panel)
        is_left = canvas.where(panel)["col"] == 1
        canvas.y_axis(label(metric, arrow=True) if is_left else None, panel=panel, range=reach)
        if name in metadata.truth:
            _add_truth(canvas, panel, metadata.truth[name], x=metadata.truth[name])
    caption = (
        f"{label(metric).capitalize()} of every finished trial against each hyperparameter at "
        "its end; the others differ too. Large marks: arms with one trial per seed, with the path "
        "they took, from below, where the score was taken on the way."
    )
    caption += _notes(run_data, len(names))
    data = trials[["run_id", "trial", "arm", "seed", "index", *names, metric]]
    return Drawing(title, canvas.figure, caption, data.reset_index(drop=True), canvas.min_width)


def _moved(run_data: RunData, own: pd.DataFrame, name: str, metric: str) -> list[pd.DataFrame]:
    """Return hyperparameter and score along each trial in which the former moved."""
    steps = run_data.steps
    if steps.empty:
        return []
    steps = steps[steps["trial"].isin(own["trial"]) & steps["metric"].isin([name, metric])]
    wide = steps.pivot_table(index=["trial", "step"], columns="metric", values="value")
    if name not in wide or metric not in wide:
        return []
    lines = [line for _, line in wide.dropna().groupby(level="trial")]
    return [line for line in lines if line[name].nunique() > 1]


def _add_truth(canvas: _Canvas, panel: int, value: float, **at: float) -> None:
    """Draw a dashed line at the true value of a hyperparameter, which is on the axis `x` or `y`."""
    add = canvas.figure.add_hline if "y" in at else canvas.figure.add_vline
    place = "bottom right" if "y" in at else "top left"
    words = {"annotation_text": f"true value {value:.3g}", "annotation_position": place}
    line = {"dash": "longdash", "width": 1.5, "color": _GREY}
    add(**at, line=line, **words, **canvas.where(panel))


def _notes(run_data: RunData, num: int) -> str:
    """What captions say of the rest without a panel, of true values and of arms out of focus."""
    more = f" {num - MAX_PANELS} more are in the data file only." if num > MAX_PANELS else ""
    if run_data.metadata.truth:
        more += " The dashed line is the value that the data was made with."
    return more + focus_note(run_data.metadata)


def samples(run_data: RunData) -> Drawing | Note:
    """Draw a panel per arm: examples down, the example itself and draws of its augmentation."""
    title = "Data under the augmentation found"
    shown, styles = in_focus(run_data.metadata), arm_styles(run_data.metadata)
    every = run_data.sample_grids or "No selected trial augments images."
    if isinstance(every, str):
        return Note(title, every)
    grids = tuple(grid for grid in every if grid.arm in shown)
    canvas = _Canvas(run_data.metadata, [styles[grid.arm].name for grid in grids])
    for panel, grid in enumerate(grids):
        image, num_draws = grid.mosaic(), grid.draws_EDHWC.shape[1]
        size: Look = {"hoverinfo": "skip", "dx": 1, "dy": 1}
        canvas.figure.add_image(source=_png(image), **size, **canvas.where(panel))
        heads = ["data", *map(str, range(1, num_draws + 1))], [str(one) for one in grid.labels]
        height, width = image.shape[:2]
        across: Look = {"title": "draw", "range": [-0.5, width - 0.5]}
        down: Look = {"title": "class", "range": [height - 0.5, -0.5]}
        steps = (side + 1 for side in grid.originals_EHWC.shape[2:0:-1])
        draws = canvas.x_axis, canvas.y_axis
        for axis, look, texts, step in zip(draws, (across, down), heads, steps, strict=True):
            look |= {"tickvals": [step * (0.5 + i) for i in range(len(texts))], "ticktext": texts}
            axis(**look, panel=panel, showgrid=False, constrain="domain")
    rows = [(one.arm, one.seed, one.trial, *pair) for one in every for pair in one.hypers.items()]
    found = []
    for grid in grids:
        decimals = {name: schema.lookup(name).decimals for name in grid.hypers}
        values = [f"{label(name)} {number(grid.hypers[name], n)}" for name, n in decimals.items()]
        found.append(f"{grid.arm}: {', '.join(values)}")
    words = "; ".join(found)
    caption = (
        "Training examples (first column) and what the net is shown in their place: independent "
        f"draws at the hyperparameters of the selected trial of seed {grids[0].seed}. {words}."
    )
    if left_out := len(every) - len(grids):
        caption += f" {left_out} more arms are in the data file only."
    data = pd.DataFrame(rows, columns=["arm", "seed", "trial", "metric", "value"])
    return Drawing(title, canvas.figure, caption, data, canvas.min_width)


def _png(image_HWC: npt.NDArray[np.uint8]) -> str:
    is_grey = image_HWC.shape[2] == 1
    image = Image.fromarray(image_HWC[:, :, 0] if is_grey else image_HWC[:, :, :3])
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
