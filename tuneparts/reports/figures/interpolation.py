"""Accuracy on the straight line between two members: a dip says that they differ in kind."""

import pandas as pd

from tuneparts.reports.figures.drawing import Drawing, Note, add_lines, canvas
from tuneparts.reports.run_data import RunData
from tuneparts.reports.statistics import estimate

TITLE = "Accuracy between two members"
_METRIC = "interpolation/accuracy."


def interpolation(run_data: RunData) -> Drawing | Note:
    """Test accuracy from the first member to the second, mean over seeds."""
    data = lines(run_data)
    if data.empty:
        return Note(TITLE, "No selected trial has interpolated between members.")
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x="place", y="accuracy")
    figure.update_xaxes(title_text="place between first and second member")
    figure.update_yaxes(title_text="test accuracy")
    caption = (
        "Test accuracy of nets whose weights lie between those of the first two members, norms "
        "using the statistics of the batch; mean and one standard error over seeds."
    )
    return Drawing(TITLE, figure, caption, data)


def lines(run_data: RunData) -> pd.DataFrame:
    """One row per arm and place: mean accuracy over seeds."""
    rows = []
    for arm, trials in run_data.selected.groupby("arm", sort=False):
        columns = [name for name in trials.columns if str(name).startswith(_METRIC)]
        known = trials[columns].dropna(axis="columns", how="all")
        numbers = sorted(int(name.removeprefix(_METRIC)) for name in known.columns)
        for number in numbers:
            point = estimate(known[f"{_METRIC}{number}"].dropna().to_numpy(dtype=float))
            rows.append((arm, number / numbers[-1], point.mean, point.se))
    return pd.DataFrame(rows, columns=["arm", "place", "accuracy", "se"])
