"""What figure functions return, and the canvas on which all of them draw."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuneparts.results.figures.style import arm_styles, in_focus
from tuneparts.results.statistics import estimate
from tuneparts.search.card import RunCard

Look: TypeAlias = dict[str, Any]
"""What plotly takes besides places: options by name."""
PANEL_HEIGHT = 330
GREY = "#7f868d"
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
    """In place of a figure whose data is missing: says what is missing."""

    title: str
    text: str


class Canvas:
    """A plotly figure in the style of the report: one panel, or a grid two panels wide.

    Marks of an arm have its colour, dash and marker; the legend names each arm once, and arms that
    are not in focus are shown by a click on it. Panels without `titles` are counted.
    """

    def __init__(self, metadata: RunCard, titles: Sequence[str] = (), num_panels: int = 1) -> None:
        self.metadata = metadata
        self.styles = arm_styles(metadata)
        self.num_panels = len(titles) or num_panels
        num_rows = -(-self.num_panels // 2)
        height = PANEL_HEIGHT * num_rows + 130
        self.figure = make_subplots(
            rows=num_rows,
            cols=min(self.num_panels, 2),
            subplot_titles=list(titles) or None,
            vertical_spacing=0 if num_rows == 1 else 120 / height,
            horizontal_spacing=0.13,
        )
        # The page stacks panels where it is narrow, by their number.
        top = 40 if titles else 16
        _dress(self.figure, height=height, margin_t=top, meta={"panels": self.num_panels})
        self._focus = in_focus(metadata)
        self._named: set[str] = set()

    @property
    def min_width(self) -> int:
        """What `Drawing.min_width` is for this many panels."""
        return 560 if self.num_panels > 1 else 0

    def where(self, panel: int) -> dict[str, int]:
        """Row and column of a panel, as plotly takes them."""
        num_columns = min(self.num_panels, 2)
        return {"row": panel // num_columns + 1, "col": panel % num_columns + 1}

    def arms(self, data: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """Name and rows of each arm that has any, in the order of the search."""
        for arm in self.styles:
            if not (own := data[data["arm"] == arm]).empty:
                yield arm, own

    def add(
        self,
        arm: str,
        x: Iterable[Any],
        y: Iterable[Any],
        *,
        panel: int = 0,
        mode: str = "lines+markers",
        width: float = 2.5,
        size: float = 8,
        line: Look | None = None,
        marker: Look | None = None,
        error: Iterable[float] | None = None,
        hover: str = "",
        in_legend: bool = True,
        **look: Any,
    ) -> None:
        """Draw marks of an arm at places (x, y), with vertical error bars where there are errors.

        `line`, `marker` and `look` are what else plotly's scatter takes; `hover` is the template of
        the text beside a mark. The legend has the first marks of each arm that are `in_legend`.
        """
        style = self.styles[arm]
        options: Look = {
            "name": style.name,
            "legendgroup": arm,
            "showlegend": in_legend and arm not in self._named,
            "visible": True if arm in self._focus else "legendonly",
            "mode": mode,
        }
        if "lines" in mode:
            own = {"color": style.colour, "dash": style.dash, "width": width}
            options["line"] = own | (line or {})
        if "markers" in mode:
            own = {"color": style.colour, "symbol": style.symbol, "size": size}
            options["marker"] = own | (marker or {})
        if error is not None:
            options["error_y"] = {"type": "data", "array": list(error)}
        if hover:
            options["hovertemplate"] = f"{hover}<extra></extra>"
        options |= {"x": list(x), "y": list(y), **look, **self.where(panel)}
        self.figure.add_scatter(**options)
        if in_legend:
            self._named.add(arm)

    def band(
        self,
        arm: str,
        x: Iterable[float],
        edges: Sequence[Iterable[float]],
        *,
        panel: int = 0,
        shape: str | None = None,
    ) -> None:
        """Fill an arm's band between two edges, the upper one first."""
        x, line = list(x), {"width": 0, "shape": shape}
        for y, fill in zip(edges, (None, "tonexty"), strict=True):
            look: Look = {"fill": fill, "fillcolor": self.styles[arm].wash, "hoverinfo": "skip"}
            self.add(arm, x, y, panel=panel, mode="lines", line=line, in_legend=False, **look)

    def lines(self, data: pd.DataFrame, *, x: str, y: str = "mean") -> None:
        """Draw a line per arm through its means, with one standard error (column `se`)."""
        for arm, own in self.arms(data):
            self.add(arm, own[x], own[y], error=own["se"])

    def x_axis(self, title: str | None = None, *, panel: int = 0, **options: Any) -> None:
        """Name the horizontal axis of a panel, and set what else plotly takes."""
        self.figure.update_xaxes(title_text=title, **options, **self.where(panel))

    def y_axis(self, title: str | None = None, *, panel: int = 0, **options: Any) -> None:
        """Name the vertical axis of a panel, and set what else plotly takes."""
        self.figure.update_yaxes(title_text=title, **options, **self.where(panel))

    def counts_axis(self, title: str, counts: Iterable[float], *, panel: int = 0) -> None:
        """Name an axis of counts, such as passes; logarithmic where they differ over tenfold."""
        positive = [value for value in counts if value > 0]
        if not positive or max(positive) <= 10 * min(positive):
            self.x_axis(title, panel=panel)
            return
        low, high = min(positive) / 1.15, max(positive) * 1.15
        ticks = [m * 10**e for e in range(12) for m in (1, 2, 5) if low <= m * 10**e <= high]
        self.x_axis(
            f"{title} (log scale)",
            panel=panel,
            type="log",
            range=[math.log10(low), math.log10(high)],
            tickvals=ticks,
            ticktext=[f"{tick:,}" for tick in ticks],
        )

    def bounded_axis(
        self, title: str, metric: str, values: Iterable[float], *, panel: int = 0, **options: Any
    ) -> None:
        """Name a horizontal axis that shows finite values, but not beyond what a metric can be."""
        least, most = bounds(metric)
        known = [min(max(value, least), most) for value in values if math.isfinite(value)]
        if known:
            low, high = min(known), max(known)
            around = 0.06 * (high - low) or 0.05
            edge = 0.02 * (high - low) or 0.01  # a mark at the edge of what can be is drawn whole
            ends = [max(low - around, least - edge), min(high + around, most + edge)]
            options["range"] = ends
        self.x_axis(title, panel=panel, **options)


def _dress(figure: go.Figure, *, height: int, margin_t: int = 16, **layout: Any) -> None:
    """Give a figure the fonts, margins, legend and grid of the report, whoever made it."""
    clear = "rgba(0,0,0,0)"
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 20, "t": margin_t, "b": 60},
        font={"family": _FONT, "size": 14, "color": "#24292f"},
        paper_bgcolor=clear,
        plot_bgcolor=clear,
        hoverlabel={"font": {"family": _FONT, "size": 13}},
        legend={"orientation": "h", "bgcolor": clear}
        | {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        **layout,
    )
    grid = {"gridcolor": "#e3e5e8", "zeroline": False, "ticks": "outside"}
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(automargin=True, title_standoff=10, **grid)


def means(data: pd.DataFrame, by: list[str], value: str = "value") -> pd.DataFrame:
    """Mean, standard error (`se`) and number (`seeds`) of a column, by other columns."""
    rows = []
    for keys, own in data.groupby(by):
        point = estimate(own[value].to_numpy(dtype=float))
        rows.append((*keys, point.mean, point.se, point.num))
    return pd.DataFrame(rows, columns=[*by, "mean", "se", "seeds"])


def bounds(metric: str) -> tuple[float, float]:
    """The smallest and the largest value that a metric can have.

    Example:
        >>> bounds("test/accuracy"), bounds("val/nll"), bounds("hyper/rotation")
        ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    quantity = metric.rpartition("/")[2].partition(".")[0]
    return _BOUNDS.get(quantity, (-math.inf, math.inf))
