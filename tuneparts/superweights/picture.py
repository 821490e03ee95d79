"""Who shares what in an ensemble of SuperWeights, as a table and as a figure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from tuneparts.superweights.bank import TemplateBank
from tuneparts.superweights.private import kept_weights

if TYPE_CHECKING:  # imported when they are needed, so that a method's import does not wait for them
    import pandas as pd
    import plotly.graph_objects as go

COLUMNS = ["member", "layer", "shape", "weights", "cluster", "templates", "coefficients", "reason"]


def sharing_table(
    bank: TemplateBank,
    private: Sequence[Mapping[str, str]] = (),
    members: Sequence[nn.Module] = (),
) -> "pd.DataFrame":
    """A row for each shared layer, in forward order, and then for each layer that shares nothing.

    Args:
        bank: of the members.
        private: for each member the layers that share nothing, with the reason.
        members: the nets that have these layers, where there are any.
    """
    import pandas as pd

    plan = bank.plan
    rows: list[tuple[Any, ...]] = []
    slot_of = {slot: number for number, slot in enumerate(plan.slots)}
    for position, (layer, label) in enumerate(zip(plan.layers, plan.labels, strict=True)):
        number = next(c for c, cluster in enumerate(plan.clusters) if position in cluster.layers)
        cluster = plan.clusters[number]
        slots = range(cluster.last_slots[cluster.layers.index(position)] + 1)
        ties = [bank.ties[slot_of[number, j]][cluster.users(j).index(position)] for j in slots]
        rows.append(
            (
                layer.member,
                layer.name,
                _written(layer.shape),
                layer.size,
                label,
                sum(cluster.templates[j] for j in slots),
                "-".join(map(str, ties)),
                "",
            )
        )
    for member, (net, reasons) in enumerate(zip(members, private, strict=True)):
        for name, reason in reasons.items():
            kept = kept_weights(net, name)
            shapes = " + ".join(_written(weight.shape) for weight in kept)
            size = sum(weight.numel() for weight in kept)
            rows.append((member, name, shapes, size, None, 0, "", reason))
    return pd.DataFrame(rows, columns=COLUMNS)


def sharing_figure(table: "pd.DataFrame") -> "go.Figure":
    """Members down, shared layers across; a number and a colour for each cluster."""
    import plotly.graph_objects as go

    shared = table[table["cluster"].notna()]
    place = shared.groupby("member").cumcount()
    shared = shared.assign(place=place, hover=shared["layer"] + " (" + shared["shape"] + ")")
    grid = shared.pivot_table(index="member", columns="place", values="cluster")
    names = shared.pivot_table(index="member", columns="place", values="hover", aggfunc="first")
    figure = go.Figure(
        go.Heatmap(
            x=[int(layer) for layer in grid.columns],
            y=[f"member {int(member)}" for member in grid.index],
            z=grid.to_numpy().tolist(),
            customdata=names.fillna("").to_numpy().tolist(),
            texttemplate="%{z}",
            colorscale="Cividis",
            showscale=False,
            hovertemplate="%{y}, %{customdata}: cluster %{z}<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="shared layer, in forward order")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(title_text="Layers with one number draw from the same templates")
    return figure


def _written(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
