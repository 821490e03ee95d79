"""A picture of one fit: what was learnt besides the weights, and the loss, along the passes."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuneparts import schema

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B97700", "#3A97D0", "#000000")
_GREYS = ("#000000", "#7F7F7F")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
_DASHES = ("solid", "dash", "dot", "dashdot")


def picture(history: Sequence[Mapping[str, float]], names: Sequence[str]) -> go.Figure:
    """Draw two panels over the passes: learnt values, and losses.

    Args:
        history: what each interval reported.
        names: of the learnt values, without `hyper/`.
    """
    titles = "what was learnt", "loss"
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.15)
    places = [row["cost/passes"] for row in history]
    # A retrained net counts from 0 again.
    passes = [x for i, x in enumerate(places) if all(x > before for before in places[:i])]
    for number, name in enumerate(names):
        unit = schema.lookup(f"hyper/{name}").unit
        _add(
            figure,
            1,
            number,
            passes,
            history,
            f"hyper/{name}",
            f"{name} ({unit})" if unit else name,
        )
    for number, (metric, words) in enumerate(
        (("train/loss", "loss of weights"), ("train/hyper_loss", "loss of hypers, unseen data"))
    ):
        _add(figure, 2, number, passes, history, metric, words)
    figure.update_xaxes(title_text="passes")
    figure.update_yaxes(title_text="value", col=1)
    figure.update_yaxes(title_text="nats", col=2)
    figure.update_layout(
        template="plotly_white",
        height=440,
        legend={"orientation": "h", "yanchor": "top", "y": -0.25},
    )
    return figure


def _add(
    figure: go.Figure,
    panel: int,
    number: int,
    passes: Sequence[float],
    history: Sequence[Mapping[str, float]],
    metric: str,
    words: str,
) -> None:
    known = [(x, row[metric]) for x, row in zip(passes, history, strict=False) if metric in row]
    if not known:
        return
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in known],
            y=[value for _, value in known],
            name=words,
            mode="lines+markers",
            line={
                "color": _COLOURS[number % len(_COLOURS)] if panel == 1 else _GREYS[number],
                "dash": _DASHES[number // len(_COLOURS) % len(_DASHES)],
            },
            marker={"symbol": _SYMBOLS[number % len(_SYMBOLS)]},
        ),
        row=1,
        col=panel,
    )
