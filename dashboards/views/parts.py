"""What several pages show alike: how a run is named and chosen, tables and figures."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.rendering import Table
from views import source

FIRST_COMMAND = "tuneparts search rotated_digits"


def _empty(place: str) -> None:
    """An empty store teaches the first command."""
    st.header("No search has run yet")
    st.markdown("Ask the first question; this page shows it as soon as it starts:")
    st.code(FIRST_COMMAND, language="bash")
    st.caption(f"Store: {place}. `tuneparts searches` lists the other questions.")


def some_runs(place: str) -> pd.DataFrame:
    """The runs of the store; where there are none the page ends with the first command."""
    found = source.runs(place)
    if found.empty:
        _empty(place)
        st.stop()
    return found


def title(run: "pd.Series[Any]") -> str:
    """A run in a line."""
    start = pd.Timestamp(str(run["start"])).strftime("%d %b %H:%M")
    return f"{run['search']} ({run['scale']}), {start}"


def chosen(
    runs: pd.DataFrame, *, key: str = "run", label: str = "Search", nth: int = 0
) -> "pd.Series[Any]":
    """A run that the reader picks; the address says which, so that a link leads to it."""
    ids = [str(one) for one in runs["parent_run_id"]]
    titles = {one: title(row) for one, (_, row) in zip(ids, runs.iterrows(), strict=True)}
    asked = st.query_params.get(key, "")
    index = ids.index(asked) if asked in ids else min(nth, len(ids) - 1)
    picked = st.selectbox(
        label, ids, index=index, format_func=titles.__getitem__, key=f"pick-{key}"
    )
    st.query_params[key] = picked
    return runs.iloc[ids.index(picked)]


def telling(counts: Mapping[Hashable, int], *first: str) -> str:
    """The metric to show before anybody chose: of the usual ones the one that most have.

    Args:
        counts: how many trials or steps have each metric.
        first: preferred where as many have it.
    """
    usual = [name for name in (*first, "val/accuracy", "test/accuracy", "train/loss") if name]
    found = [name for name in usual if counts.get(name)]
    return (
        max(found, key=lambda name: counts[name])
        if found
        else min(str(name) for name in counts if "/" in str(name))
    )


def table(built: Table) -> None:
    """A table of the report."""
    headers = [column.header for column in built.columns]
    rows = [[cell.text for cell in row] for row in built.rows]
    st.dataframe(pd.DataFrame(rows, columns=headers), hide_index=True)
    st.caption(" ".join(built.notes))


def figure(drawing: Drawing | Note, *, key: str) -> None:
    """A figure of the report with its caption."""
    st.subheader(drawing.title)
    if isinstance(drawing, Note):
        st.info(drawing.text)
        return
    st.plotly_chart(drawing.figure, theme=None, key=key, config={"displayModeBar": False})
    st.caption(drawing.caption)
