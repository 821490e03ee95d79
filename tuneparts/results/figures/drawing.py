"""What figure functions return and share: drawings, notes, canvases and axes."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuneparts.results.figures.style import ArmStyle, arm_styles, visible
from tuneparts.search.card import RunCard

PANEL_HEIGHT = 330
_GRID = "#e3e5e8"
_INK = "#24292f"
_BOUNDS = {
    **dict.fromkeys(("accuracy", "member_accuracy", "disagreement", "ece"), (0.0, 1.0)),
    "brier": (0.0, 2.0),
    "nll": (0.0, math.inf),
    "val_nll": (0.0, math.inf),
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its caption and the numbers that it shows."""

    title: str
    figure: go.Figure
    caption: str
    data: pd.DataFrame
    min_width: int = 0
    """Pixels below which the page scrolls sideways instead of squeezing the figure."""


@dataclass(frozen=True)
class Note:
    """Stands in place of a figure whose data is missing, and says what is missing."""

    title: str
    text: str


def canvas(num_panels: int = 1, titles: Sequence[str] = ()) -> go.Figure:
    """Make an empty figure in the style of the report: one panel, or a grid two panels wide."""
    num_columns = min(num_panels, 2)
    num_rows = -(-num_panels // num_columns)
    height = PANEL_HEIGHT * num_rows + 130
    figure = make_subplots(
        rows=num_rows,
        cols=num_columns,
        subplot_titles=list(titles) or None,
        vertical_spacing=0 if num_rows == 1 else 120 / height,
        horizontal_spacing=0.13,
    )
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 20, "t": 40 if titles else 16, "b": 60},
        font={"family": _FONT, "size": 14, "color": _INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"font": {"family": _FONT, "size": 13}},
        meta={"panels": num_panels},  # by which the page stacks them where it is narrow
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
            "bgcolor": "rgba(0,0,0,0)",
        },
    )
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(gridcolor=_GRID, zeroline=False, automargin=True, ticks="outside", title_standoff=10)
    return figure


def by_arm(metadata: RunCard, data: pd.DataFrame) -> Iterator[tuple[str, ArmStyle, pd.DataFrame]]:
    """Name, style and rows of each arm that has any, in the order of the search."""
    for arm, style in arm_styles(metadata).items():
        if not (own := data[data["arm"] == arm]).empty:
            yield arm, style, own


def add_band(
    figure: go.Figure, style: ArmStyle, x: list[float], *edges: list[float], **look: Any
) -> None:
    """Fill an arm's band between two edges, the upper one first."""
    line = {"width": 0, "shape": look.pop("shape", None)}
    for y, fill in zip(edges, (None, "tonexty"), strict=True):
        figure.add_scatter(
            x=x, y=y, fill=fill, fillcolor=style.wash, mode="lines", line=line, showlegend=False,
            hoverinfo="skip", **look,
        )  # fmt: skip


def add_lines(figure: go.Figure, metadata: RunCard, data: pd.DataFrame, *, x: str, y: str) -> None:
    """Draw a line per arm through its means, with one standard error.

    `data` has columns `arm` and `se` besides those of places, `x`, and of means, `y`.
    """
    for arm, style, own in by_arm(metadata, data):
        figure.add_scatter(
            x=own[x].tolist(),
            y=own[y].tolist(),
            error_y={"type": "data", "array": own["se"].tolist()},
            name=style.name,
            visible=visible(arm, metadata),
            mode="lines+markers",
            line=style.line(2.5),
            marker=style.marker(8),
        )


def place(panel: int, num_panels: int) -> dict[str, int]:
    """Return row and column of a panel in a canvas of so many panels."""
    num_columns = min(num_panels, 2)
    return {"row": panel // num_columns + 1, "col": panel % num_columns + 1}


def counts_axis(
    figure: go.Figure, title: str, counts: Sequence[float], where: dict[str, int]
) -> None:
    """Label an axis of counts, such as passes; logarithmic where they differ more than tenfold."""
    positive = [value for value in counts if value > 0]
    options: dict[str, Any] = {}
    is_log = bool(positive) and max(positive) > 10 * min(positive)
    if is_log:
        low, high = min(positive) / 1.15, max(positive) * 1.15
        ticks = [m * 10**e for e in range(12) for m in (1, 2, 5) if low <= m * 10**e <= high]
        options = {
            "type": "log",
            "range": [math.log10(low), math.log10(high)],
            "tickvals": ticks,
            "ticktext": [f"{tick:,}" for tick in ticks],
        }
    figure.update_xaxes(title_text=f"{title} (log scale)" if is_log else title, **options, **where)


def bounded_axis(
    axes: Callable[..., Any], metric: str, values: Iterable[float], where: dict[str, int]
) -> None:
    """Set the range of an axis around finite values, but not beyond what the metric can be.

    `axes` is `update_xaxes` or `update_yaxes` of a figure.
    """
    least, most = bounds(metric)
    known = [min(max(value, least), most) for value in values if math.isfinite(value)]
    if not known:
        return
    low, high = min(known), max(known)
    room = 0.06 * (high - low) or 0.05
    # A mark at the edge of what can be is drawn whole.
    edge = 0.02 * (high - low) or 0.01
    low = max(low - room, least - edge)
    high = min(high + room, most + edge)
    axes(range=[low, high], **where)


def bounds(metric: str) -> tuple[float, float]:
    """The smallest and the largest value that a metric can have.

    Example:
        >>> bounds("test/accuracy"), bounds("val/nll"), bounds("hyper/rotation")
        ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    quantity = metric.rpartition("/")[2].partition(".")[0]
    return _BOUNDS.get(quantity, (-math.inf, math.inf))
