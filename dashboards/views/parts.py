"""What several pages share: naming and choosing a run, tables and figures."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.rendering import Table
from views import source

FIRST_COMMAND = "tuneparts search rotated_digits"


def _empty(place: str) -> None:
    """Show the first command to try, where the store is empty."""
    st.header("No search has run yet")
    st.markdown("Ask the first question; this page shows it as soon as it starts:")
    st.code(FIRST_COMMAND, language="bash")
    st.caption(f"Store: {place}. `tuneparts searches` lists the other questions.")


def some_runs(place: str) -> pd.DataFrame:
    """Return the runs of the store; where there are none, show the first command and stop."""
    found = source.runs(place)
    if found.empty:
        _empty(place)
        st.stop()
    return found


def title(run: "pd.Series[Any]") -> str:
    """Return the name of a run for lists: search, scale and start."""
    start = pd.Timestamp(str(run["start"])).strftime("%d %b %H:%M")
    return f"{run['search']} ({run['scale']}), {start}"


def chosen(
    runs: pd.DataFrame, *, key: str = "run", label: str = "Search", nth: int = 0
) -> "pd.Series[Any]":
    """Let the reader pick a run; the address of the page holds it, so that a link leads to it."""
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
    """Return the metric to show first: of the usual ones the one that most trials have.

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
    """Show a table of the report."""
    headers = [column.header for column in built.columns]
    rows = [[cell.text for cell in row] for row in built.rows]
    st.dataframe(pd.DataFrame(rows, columns=headers), hide_index=True)
    st.caption(" ".join(built.notes))


def figure(drawing: Drawing | Note, *, key: str) -> None:
    """Show a figure of the report with its caption, or the note in its place."""
    st.subheader(drawing.title)
    if isinstance(drawing, Note):
        st.info(drawing.text)
        return
    st.plotly_chart(drawing.figure, theme=None, key=key, config={"displayModeBar": False})
    st.caption(drawing.caption)
