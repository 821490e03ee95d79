"""The figure of partitioned training: what each further partition adds to the net."""

import pandas as pd

from tuneparts.results.figures.drawing import Drawing, Note, add_lines, canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.statistics import estimate

TITLE = "Accuracy by subnetwork"
_ACCURACY = "subnetwork/accuracy."


def subnetworks(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy against the number of partitions that are used, a line per arm.

    A line that falls says that late partitions subtract from what early ones know.
    """
    data = levels(run_data)
    if data.empty:
        return Note(TITLE, "No selected trial has subnetworks with test scores.")
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x="level", y="accuracy")
    figure.update_xaxes(title_text="partitions in use", dtick=1)
    figure.update_yaxes(title_text="test accuracy")
    caption = (
        "Test accuracy at the end of training, with the weights of partitions 1 to k and default "
        "values for all others; mean and one standard error over seeds."
    )
    return Drawing(TITLE, figure, caption, data)


def levels(run_data: RunData) -> pd.DataFrame:
    """Return one row per arm and subnetwork: mean accuracy over seeds."""
    rows = []
    if "arm" not in run_data.selected:
        return pd.DataFrame(columns=["arm", "level", "accuracy", "se"])
    for arm, trials in run_data.selected.groupby("arm", sort=False):
        names = [str(name).removeprefix(_ACCURACY) for name in trials.columns]
        for level in sorted(int(name) for name in names if name.isdigit()):
            known = trials[f"{_ACCURACY}{level}"].dropna()
            if len(known):
                point = estimate(known.to_numpy(dtype=float))
                rows.append((arm, level, point.mean, point.se))
    return pd.DataFrame(rows, columns=["arm", "level", "accuracy", "se"])
