"""What figure functions return, and the canvas on which all of them draw."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tuneparts.core import schema
from tuneparts.results.figures._style import arm_styles, in_focus
from tuneparts.results.statistics import _estimate
from tuneparts.results.tables import label
from tuneparts.search.card import RunCard

Look: TypeAlias = dict[str, Any]
"""What plotly takes besides places: options by name."""
PANEL_HEIGHT = 330
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CLEAR = "rgba(0,0,0,0)"


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


class _Canvas:
    """A plotly figure in the style of the report: one panel, or a grid two panels wide.

    Marks of an arm have its colour, dash and marker; the legend names each arm once, and arms that
    are not in focus are shown by a click on it. Panels without `titles` are counted.
    """

    def __init__(self, metadata: RunCard, titles: Sequence[str] = (), num_panels: int = 1) -> None:
        self.styles = arm_styles(metadata)
        self.num_panels = len(titles) or num_panels
        self.min_width = 560 if self.num_panels > 1 else 0
        self._focus = in_focus(metadata)
        self._named: set[str] = set()
        num_rows = -(-self.num_panels // 2)
        height = PANEL_HEIGHT * num_rows + 130
        self.figure = make_subplots(
            rows=num_rows,
            cols=min(self.num_panels, 2),
            subplot_titles=list(titles) or None,
            vertical_spacing=0 if num_rows == 1 else 120 / height,
            horizontal_spacing=0.13,
        )
        self.figure.update_layout(
            template="none",
            height=height,
            margin={"l": 64, "r": 20, "t": 40 if titles else 16, "b": 60},
            font={"family": _FONT, "size": 14, "color": "#24292f"},
            paper_bgcolor=_CLEAR,
            plot_bgcolor=_CLEAR,
            hoverlabel={"font": {"family": _FONT, "size": 13}},
            legend={"orientation": "h", "bgcolor": _CLEAR}
            | {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
            # The page stacks panels where it is narrow, by their number.
            meta={"panels": self.num_panels},
        )
        grid = {"gridcolor": "#e3e5e8", "zeroline": False, "ticks": "outside"}
        for axes in (self.figure.update_xaxes, self.figure.update_yaxes):
            axes(automargin=True, title_standoff=10, **grid)

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
        """Draw marks of an arm; `line`, `marker` and `look` are what else plotly's scatter takes.

        `hover` is a template. The legend has the first marks of each arm that are `in_legend`.
        """
        style = self.styles[arm]
        options: Look = {"name": style.name, "legendgroup": arm, "mode": mode}
        options["showlegend"] = in_legend and arm not in self._named
        options["visible"] = True if arm in self._focus else "legendonly"
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
        options |= {"x": list(x), "y": list(y)} | look
        self.figure.add_scatter(**options, **self.where(panel))
        self._named |= {arm} if in_legend else set()

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

    def heat_map(self, table: pd.DataFrame, *, panel: int = 0, **options: Any) -> None:
        """Draw the values of a table, whose columns go across and whose index goes up."""
        places: Look = {"x": list(table.columns), "y": list(table.index), "colorscale": "Cividis"}
        z = table.to_numpy().tolist()
        self.figure.add_heatmap(z=z, **places, **options, **self.where(panel))

    def x_axis(self, title: str | None = None, *, panel: int = 0, **options: Any) -> None:
        """Name the horizontal axis of a panel, and set what else plotly takes."""
        self.figure.update_xaxes(title_text=title, **options, **self.where(panel))

    def y_axis(self, title: str | None = None, *, panel: int = 0, **options: Any) -> None:
        self.figure.update_yaxes(title_text=title, **options, **self.where(panel))

    def counts_axis(self, title: str, counts: Iterable[float], *, panel: int = 0) -> None:
        """Name an axis of counts, such as steps; logarithmic where they differ over tenfold."""
        positive = [value for value in counts if value > 0]
        if not positive or max(positive) <= 10 * min(positive):
            self.x_axis(title, panel=panel)
            return
        low, high = min(positive) / 1.15, max(positive) * 1.15
        ticks = [m * 10**e for e in range(12) for m in (1, 2, 5) if low <= m * 10**e <= high]
        words: Look = {"tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}
        ends = [math.log10(low), math.log10(high)]
        self.x_axis(f"{title} (log scale)", panel=panel, type="log", range=ends, **words)

    def bounded_axis(
        self, title: str, metric: str, values: Iterable[float], *, panel: int = 0, **options: Any
    ) -> None:
        """Name a horizontal axis that shows finite values, but not beyond what a metric can be."""
        least, most = schema.lookup(metric).bounded(-math.inf, math.inf)
        known = [min(max(value, least), most) for value in values if math.isfinite(value)]
        if known:
            low, high = min(known), max(known)
            around = 0.06 * (high - low) or 0.05
            edge = 0.02 * (high - low) or 0.01  # a mark at the edge of what can be is drawn whole
            ends = [max(low - around, least - edge), min(high + around, most + edge)]
            options["range"] = ends
        self.x_axis(title, panel=panel, **options)


def _line_chart(
    metadata: RunCard, title: str, data: pd.DataFrame, caption: str, *, x: str, x_title: str,
    y_title: str, y: str = "mean", is_count: bool = False, **x_options: Any,
) -> Drawing:  # fmt: skip
    """Draw a line per arm through its means, with one standard error (column `se`)."""
    canvas = _Canvas(metadata)
    for arm, own in canvas.arms(data):
        canvas.add(arm, own[x], own[y], error=own["se"])
    if is_count:
        canvas.counts_axis(x_title, data[x])
    else:
        canvas.x_axis(x_title, **x_options)
    canvas.y_axis(y_title)
    return Drawing(title, canvas.figure, caption, data)


def means(data: pd.DataFrame, by: list[str], value: str = "value") -> pd.DataFrame:
    """Mean, standard error (`se`) and number (`seeds`) of a column, by other columns."""
    rows = []
    for keys, own in data.groupby(by):
        point = _estimate(own[value].to_numpy(dtype=float))
        rows.append((*keys, point.mean, point.se, point.num))
    return pd.DataFrame(rows, columns=[*by, "mean", "se", "seeds"])


def _spelled(metric: str) -> str:
    """How a caption that begins with a metric begins: its name and meaning."""
    return f"{label(metric).capitalize()} ({schema.lookup(metric).meaning})"
