"""Any metric against rounds of fixing, as Subia-Waud & Dasmahapatra (2023, appendix) draw it."""

import pandas as pd

from tuneparts import schema
from tuneparts.reports.figures.drawing import Drawing, Note, add_lines, canvas
from tuneparts.reports.run_data import RunData
from tuneparts.reports.statistics import estimate
from tuneparts.reports.tables import label

WIDE = 30
"""A metric whose means differ by more than this factor is drawn on a logarithmic axis."""
_ROUNDS = "fixing/rounds"


def rounds(run_data: RunData, metric: str = "val/accuracy") -> Drawing | Note:
    """Mean over seeds with one standard error, at the last report of each round."""
    title = f"{label(metric).capitalize()} over rounds"
    data = by_round(run_data, metric)
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} with rounds of fixing.")
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x="round", y="mean")
    is_wide = data["mean"].min() > 0 and data["mean"].max() > WIDE * data["mean"].min()
    figure.update_xaxes(title_text="rounds of fixing so far", dtick=1)
    figure.update_yaxes(title_text=label(metric, arrow=True), type="log" if is_wide else "linear")
    caption = (
        f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}) at the last report "
        "before the next round, by rounds of fixing so far: mean and one standard error over "
        "seeds. At 0 nothing is fixed."
    )
    return Drawing(title, figure, caption, data)


def by_round(run_data: RunData, metric: str) -> pd.DataFrame:
    """Columns arm, round, mean, se, seeds."""
    keys = ["arm", "seed", "step"]
    counts = run_data.paths(_ROUNDS)[[*keys, "value"]].rename(columns={"value": "round"})
    pairs = counts.merge(run_data.paths(metric)[[*keys, "value"]], on=keys).sort_values(keys)
    last = pairs.groupby(["arm", "seed", "round"], as_index=False).last()
    last["round"] = last["round"].astype(int)
    rows = []
    for (arm, number), own in last.groupby(["arm", "round"]):
        point = estimate(own["value"].to_numpy(dtype=float))
        rows.append((arm, number, point.mean, point.se, point.num))
    return pd.DataFrame(rows, columns=["arm", "round", "mean", "se", "seeds"])
