"""Which layers share templates: the cluster of each layer of each member."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts.reports.figures.drawing import Drawing, Note, canvas, place
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData

TITLE = "Clusters of layers"
_CLUSTER = "superweights/cluster."


def membership(run_data: RunData) -> Drawing | Note:
    """A panel per arm: members down, layers across, the cluster as number and shade."""
    data = memberships(run_data)
    if data.empty:
        return Note(TITLE, "No selected trial has clusters of layers.")
    shown = data[data["seed"] == data["seed"].iloc[0]]
    arms = list(dict.fromkeys(shown["arm"]))
    names = arm_styles(run_data.metadata)
    figure = canvas(len(arms), [names[arm].name for arm in arms])
    for panel, arm in enumerate(arms):
        own = shown[shown["arm"] == arm]
        grid = own.pivot_table(index="member", columns="layer", values="cluster")
        figure.add_trace(
            go.Heatmap(
                x=[int(layer) for layer in grid.columns],
                y=[f"member {int(member)}" for member in grid.index],
                z=grid.to_numpy().tolist(),
                texttemplate="%{z}",
                colorscale="Cividis",
                showscale=False,
                hovertemplate="%{y}, layer %{x}: cluster %{z}<extra></extra>",
            ),
            **place(panel, len(arms)),
        )
        figure.update_xaxes(title_text="layer, in forward order", **place(panel, len(arms)))
        figure.update_yaxes(autorange="reversed", **place(panel, len(arms)))
    caption = (
        f"The cluster of each shared layer of each member, for seed {shown['seed'].iloc[0]}: "
        "layers with one number draw from the same templates. Other seeds are in the data file."
    )
    return Drawing(TITLE, figure, caption, data, min_width=560)


def memberships(run_data: RunData) -> pd.DataFrame:
    """One row per arm, seed, member and layer."""
    selected = run_data.selected
    rows = [
        (trial["arm"], trial["seed"], *map(int, str(name).removeprefix(_CLUSTER).split("_")), value)
        for _, trial in selected.iterrows()
        for name, value in trial.items()
        if str(name).startswith(_CLUSTER) and pd.notna(value)
    ]
    data = pd.DataFrame(rows, columns=["arm", "seed", "member", "layer", "cluster"])
    return data.sort_values(["arm", "seed", "member", "layer"], kind="stable", ignore_index=True)
