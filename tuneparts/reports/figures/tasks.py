"""Every arm over several runs: how the answer changes with the task, as with the size of data."""

from collections.abc import Mapping
from html import escape

import pandas as pd

from tuneparts.reports.figures.drawing import Drawing, add_lines, canvas, counts_axis
from tuneparts.reports.run_data import RunData
from tuneparts.reports.tables import label


def tasks(runs: Mapping[str | float, RunData], setting: str, metric: str) -> Drawing:
    """A line per arm through the runs that have it.

    Args:
        runs: what each run left, by the value that tells it from the others.
        setting: what that value is.
        metric: of the trial selected by validation, mean over seeds.
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
