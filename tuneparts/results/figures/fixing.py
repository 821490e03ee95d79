"""Figures of weights that are fixed by rounds (Subia-Waud & Dasmahapatra 2023, appendix).

`rounds` draws any metric over the rounds. `deviations` draws means against standard deviations,
layer by layer: how the prior puts deviations between powers of two, and what training and
clustering make of them.
"""

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, add_lines, canvas, place
from tuneparts.results.figures.style import arm_styles
from tuneparts.results.run_data import RunData
from tuneparts.results.statistics import estimate
from tuneparts.results.tables import label

WIDE = 30
"""A metric whose means differ by more than this factor is drawn on a logarithmic axis."""
_ROUNDS = "fixing/rounds"
DEVIATIONS = "Means against deviations"
MAX_LAYERS = 4
"""Rows of panels; of deeper nets the first layer, the last, and some between."""


def rounds(run_data: RunData, metric: str = "val/accuracy") -> Drawing | Note:
    """Draw a metric over the rounds of fixing: mean and one standard error over seeds.

    Each round is represented by its last report.
    """
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
    """Return columns arm, round, mean, se, seeds."""
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


def deviations(run_data: RunData, arm: str = "") -> Drawing | Note:
    """Draw two panels per layer, for the first seed of an arm (the first that left weights)."""
    if arm:
        run_data.metadata.arm(arm)
    title = f"{DEVIATIONS}: {arm}" if arm else DEVIATIONS
    found = weights(run_data, arm)
    if found.empty:
        return Note(title, "No selected trial has left its means and deviations.")
    owner, seed = str(found["arm"].iloc[0]), found["seed"].iloc[0]
    names = list(dict.fromkeys(found["layer"]))
    chosen = _spread(names)
    moments = list(dict.fromkeys(found["moment"]))
    panels = [(layer, moment) for layer in chosen for moment in moments]
    figure = canvas(len(panels), [f"{layer}, {moment}" for layer, moment in panels])
    style = arm_styles(run_data.metadata)[owner]
    for panel, (layer, moment) in enumerate(panels):
        own = found[(found["layer"] == layer) & (found["moment"] == moment)]
        where = place(panel, len(panels))
        figure.add_scatter(
            x=own["mu"].tolist(),
            y=own["sigma"].tolist(),
            mode="markers",
            marker={"color": style.colour, "size": 4, "opacity": 0.5},
            showlegend=False,
            hovertemplate="mu %{x:.4f}, sigma %{y:.5f}<extra></extra>",
            **where,
        )
        figure.update_xaxes(title_text="mean", **where)
        figure.update_yaxes(
            title_text="deviation", rangemode="tozero", exponentformat="none", **where
        )
    rest = len(names) - len(chosen)
    caption = (
        f"Each point is a weight of {owner}, seed {seed}: its mean and standard deviation where "
        "training as Gaussians starts, and after the last weights were fixed, when all weights of "
        "a cluster have its centre as mean and its spread as deviation. At most "
        f"{int(found.groupby(['layer', 'moment']).size().max())} weights of a layer are drawn"
        + (f"; {rest} more layers are in the data file." if rest else ".")
    )
    return Drawing(title, figure, caption, found, min_width=560)


def weights(run_data: RunData, arm: str = "") -> pd.DataFrame:
    """Return the weights that the first selected trial left, if one did.

    Columns: arm, seed, layer, moment (at the start, at the end), mu, sigma.
    """
    names = ["arm", "seed", "layer", "moment", "mu", "sigma"]
    for _, trial in run_data.selected.iterrows():
        if arm and trial["arm"] != arm:
            continue
        left = run_data.artifact(str(trial["trial"]), "deviations")
        if left is not None and len(left):
            return left.assign(arm=trial["arm"], seed=trial["seed"])[names]
    return pd.DataFrame(columns=names)


def _spread(names: list[str]) -> list[str]:
    """Choose at most `MAX_LAYERS` layers evenly, the first and the last included."""
    if len(names) <= MAX_LAYERS:
        return names
    return [names[round(i * (len(names) - 1) / (MAX_LAYERS - 1))] for i in range(MAX_LAYERS)]
