"""Figures of a metric against what differs between trials or between runs.

`sweep` draws it against a setting, `heat_map` over two settings, and `tasks` over several runs.
"""

from collections.abc import Mapping
from html import escape

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, add_lines, canvas, counts_axis
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import estimate
from tuneparts.results.tables import label


def sweep(run_data: RunData, setting: str, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw a metric against a setting (`param.<path>`, `seed` or a hyper), a line per arm."""
    title = f"{label(metric).capitalize()} against {_name(setting)}"
    trials = _finished(run_data, [setting, metric])
    if trials.empty:
        return Note(title, f"No finished trial has both {setting} and {metric}.")
    rows = []
    for (arm, value), own in trials.groupby(["arm", setting]):
        point = estimate(own[metric].to_numpy())
        rows.append((arm, value, point.mean, point.se, point.num))
    data = pd.DataFrame(rows, columns=["arm", setting, "mean", "se", "trials"])
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x=setting, y="mean")
    is_number = pd.api.types.is_numeric_dtype(data[setting])
    figure.update_xaxes(
        title_text=escape(_name(setting), quote=False), type="linear" if is_number else "category"
    )
    figure.update_yaxes(title_text=label(metric, arrow=True))
    meaning = schema.lookup(metric).meaning
    caption = (
        f"{label(metric).capitalize()} ({meaning}) of the finished trials at each value of "
        f"{_name(setting)}: mean and one standard error, without error where a value has one trial."
    )
    return Drawing(title, figure, caption, data)


def heat_map(
    run_data: RunData, across: str, up: str, metric: str = "test/accuracy", arm: str = ""
) -> Drawing | Note:
    """Draw the mean of a metric over two settings, from finished trials of one arm or of all."""
    title = f"{label(metric).capitalize()} over {_name(across)} and {_name(up)}"
    trials = _finished(run_data, [across, up, metric])
    if arm:
        title = f"{title}: {arm}"
        trials = trials[trials["arm"] == arm]
    if trials.empty:
        return Note(title, f"No finished trial has {across}, {up} and {metric}.")
    data = trials.groupby([across, up])[metric].agg(["mean", "count"]).reset_index()
    grid = data.pivot_table(index=up, columns=across, values="mean")
    decimals = min(schema.lookup(metric).decimals, 3)
    figure = canvas()
    figure.add_heatmap(
        x=[_tick(value) for value in grid.columns],
        y=[_tick(value) for value in grid.index],
        z=grid.to_numpy().tolist(),
        colorscale="Cividis",
        reversescale=schema.lookup(metric).direction is schema.Direction.DOWN,
        texttemplate=f"%{{z:.{decimals}f}}",
        hoverongaps=False,
        colorbar={"title": {"text": label(metric)}, "thickness": 14},
    )
    figure.update_xaxes(title_text=escape(_name(across), quote=False), type="category")
    figure.update_yaxes(title_text=escape(_name(up), quote=False), type="category")
    caption = (
        f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}): mean of the finished "
        f"trials at each pair of {_name(across)} and {_name(up)}."
    )
    return Drawing(title, figure, caption, data)


def _finished(run_data: RunData, names: list[str]) -> pd.DataFrame:
    """Return finished trials that have all of these columns, with texts of numbers as numbers."""
    trials = run_data.trials[run_data.trials["outcome"] == "finished"].copy()
    if any(name not in trials for name in names):
        return trials.iloc[:0]
    trials = trials.dropna(subset=names)
    for name in names:
        numbers = column(trials, name)
        if numbers.notna().all():
            trials[name] = numbers
        else:
            trials[name] = [_listed(v) if isinstance(v, list) else v for v in trials[name]]
    return trials


def _listed(values: list[object]) -> str:
    """Return a list as a label; two significant digits are enough for shares."""
    return ", ".join(f"{v:.2g}" if isinstance(v, float) else str(v) for v in values)


def _tick(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return escape(text, quote=False)


def _name(setting: str) -> str:
    return label(setting) if "/" in setting else setting.removeprefix("param.")


def tasks(runs: Mapping[str | float, RunData], setting: str, metric: str) -> Drawing:
    """Draw a metric over several runs, a line per arm through the runs that have it.

    The key of a run is the value of `setting` that tells it from the others.
    """
    rows = [
        (row["arm"], value, row[metric], row[f"{metric}:se"])
        for value, run_data in runs.items()
        for row in run_data.summary.to_dict("records")
        if pd.notna(row.get(metric))
    ]
    data = pd.DataFrame(rows, columns=["arm", setting, "mean", "se"])
    is_number = all(isinstance(value, int | float) for value in runs)
    if is_number:
        data = data.sort_values(setting, kind="stable")
    figure = canvas()
    add_lines(figure, next(iter(runs.values())).metadata, data, x=setting, y="mean")
    if is_number:
        counts_axis(figure, escape(setting, quote=False), data[setting].tolist(), {})
    else:
        figure.update_xaxes(title_text=escape(setting, quote=False), type="category")
    figure.update_yaxes(title_text=label(metric, arrow=True))
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation: mean and one standard "
        "error over seeds, a run at each place."
    )
    return Drawing(f"{label(metric).capitalize()} against {setting}", figure, caption, data)
