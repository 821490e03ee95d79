"""What figure functions return and share: drawings, notes, canvases and axes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.metadata import ReportMetadata

PANEL_HEIGHT = 330
_GRID = "#e3e5e8"
_INK = "#24292f"
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


def add_lines(
    figure: go.Figure, metadata: ReportMetadata, data: pd.DataFrame, *, x: str, y: str
) -> None:
    """Draw a line per arm through its means, with one standard error.

    Args:
        figure: to draw on.
        metadata: of the search.
        data: columns `arm` and `se` besides those of `x` and `y`.
        x: column of places.
        y: column of means.
    """
    for arm, style in arm_styles(metadata).items():
        own = data[data["arm"] == arm]
        if own.empty:
            continue
        figure.add_trace(
            go.Scatter(
                x=own[x].tolist(),
                y=own[y].tolist(),
                error_y={"type": "data", "array": own["se"].tolist()},
                name=style.name,
                mode="lines+markers",
                line={"color": style.colour, "dash": style.dash, "width": 2.5},
                marker={"color": style.colour, "symbol": style.symbol, "size": 8},
            )
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
    if positive and max(positive) > 10 * min(positive):
        low, high = min(positive) / 1.15, max(positive) * 1.15
        ticks = [m * 10**e for e in range(12) for m in (1, 2, 5) if low <= m * 10**e <= high]
        options = {
            "type": "log",
            "range": [math.log10(low), math.log10(high)],
            "tickvals": ticks,
            "ticktext": [f"{tick:,}" for tick in ticks],
        }
    figure.update_xaxes(title_text=title, **options, **where)
