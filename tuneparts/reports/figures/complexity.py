"""What a step costs as the net grows: the plot of `tuneparts bench complexity`."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts.reports.figures.drawing import Drawing, canvas, place
from tuneparts.reports.figures.style import COLOURS

_STYLES = {
    "standard": (COLOURS[6], "solid", "circle"),
    "partitioned_weights": (COLOURS[0], "solid", "circle"),
    "partitioned_hypers": (COLOURS[0], "dash", "square"),
    "augerino": (COLOURS[3], "solid", "diamond"),
    "laplace_weights": (COLOURS[4], "solid", "circle"),
    "laplace_hypers": (COLOURS[4], "dash", "square"),
    "kronecker_hypers": (COLOURS[4], "dot", "diamond"),
}
"""Colour by method as in all figures, dashes for steps of hypers."""
_QUANTITIES = {"ms": "CPU time of a step (ms)", "MB": "peak memory (MB)"}


def complexity(rows: pd.DataFrame) -> Drawing:
    """Draw time and peak memory against weights, a panel for each kind of net and quantity.

    Args:
        rows: `net`, `width`, `weights`, `method`, `ms`, `MB` and, where a method refused, `note`.
    """
    nets = list(dict.fromkeys(rows["net"]))
    panels = [(net, quantity) for net in nets for quantity in _QUANTITIES]
    figure = canvas(len(panels), [f"{net}: {_QUANTITIES[quantity]}" for net, quantity in panels])
    done = rows[rows["ms"].notna()]
    for number, (net, quantity) in enumerate(panels):
        where = place(number, len(panels))
        for method, own in done[done["net"] == net].groupby("method", sort=False):
            colour, dash, symbol = _STYLES[str(method)]
            figure.add_trace(
                go.Scatter(
                    x=own["weights"].tolist(),
                    y=own[quantity].tolist(),
                    name=str(method),
                    legendgroup=str(method),
                    showlegend=number == 0,
                    mode="lines+markers",
                    line={"color": colour, "dash": dash, "width": 2.5},
                    marker={"color": colour, "symbol": symbol, "size": 8},
                ),
                **where,
            )
        figure.update_xaxes(type="log", title_text="weights", **where)
        figure.update_yaxes(type="log", **where)
    refused = rows[rows["ms"].isna()]
    caption = (
        "One step on a batch of noise, one thread, all methods interleaved; medians. Both axes are "
        "logarithmic. Hyper steps of Laplace carry Jacobians of the batch (Mlodozeniec et al. "
        "2023, appendix D)."
    )
    if not refused.empty:
        places = [f"{row.method} at {row.net} of width {row.width}" for row in refused.itertuples()]
        caption += f" Refused for lack of memory: {', '.join(places)}."
    return Drawing("What a step costs as the net grows", figure, caption, rows)
