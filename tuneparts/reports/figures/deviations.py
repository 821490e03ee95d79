"""Means against standard deviations, layer by layer, at the start and after the last fixing.

As Subia-Waud & Dasmahapatra (2023, appendix) draw it: how the prior puts deviations between powers
of two, and what training and clustering make of them.
"""

import pandas as pd
import plotly.graph_objects as go

from tuneparts.reports.figures.drawing import Drawing, Note, canvas, place
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData

TITLE = "Means against deviations"
MAX_LAYERS = 4
"""Rows of panels; of deeper nets the first layer, the last, and some between."""


def deviations(run_data: RunData, arm: str = "") -> Drawing | Note:
    """Two panels per layer, for the first seed of an arm that left its weights.

    Args:
        run_data: the run.
        arm: which arm; the first that left weights when not given.
    """
    if arm:
        run_data.metadata.arm(arm)
    title = f"{TITLE}: {arm}" if arm else TITLE
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
        figure.add_trace(
            go.Scatter(
                x=own["mu"].tolist(),
                y=own["sigma"].tolist(),
                mode="markers",
                marker={"color": style.colour, "size": 4, "opacity": 0.5},
                showlegend=False,
                hovertemplate="mu %{x:.4f}, sigma %{y:.5f}<extra></extra>",
            ),
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
    """Columns arm, seed, layer, moment, mu, sigma of the first selected trial that has any."""
    for _, trial in run_data.selected.iterrows():
        if arm and trial["arm"] != arm:
            continue
        left = run_data.artifact(str(trial["trial"]), "deviations")
        if left is not None and len(left):
            return left.assign(arm=trial["arm"], seed=trial["seed"])[
                ["arm", "seed", "layer", "moment", "mu", "sigma"]
            ]
    return pd.DataFrame(columns=["arm", "seed", "layer", "moment", "mu", "sigma"])


def _spread(names: list[str]) -> list[str]:
    """At most `MAX_LAYERS` of them, the first and the last included."""
    if len(names) <= MAX_LAYERS:
        return names
    return [names[round(i * (len(names) - 1) / (MAX_LAYERS - 1))] for i in range(MAX_LAYERS)]
