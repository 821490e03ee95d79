"""What several pages share: naming and choosing a run, tables and figures."""

import subprocess
import sys
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.rendering import Table
from tuneparts.tracking import store
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
    rows = [list(row) for row in built.rows]
    whole(pd.DataFrame(rows, columns=headers))
    st.caption(" ".join(built.notes))


def whole(frame: pd.DataFrame, **options: Any) -> None:
    """Show every row of a frame: a box that scrolls inside the page hides half of it."""
    st.dataframe(frame, hide_index=True, height="content", **options)


def figure(drawing: Drawing | Note, *, key: str) -> None:
    """Show a figure of the report with its caption, or the note in its place."""
    st.subheader(drawing.title)
    if isinstance(drawing, Note):
        st.info(drawing.text)
        return
    plot(drawing.figure, key=key)
    st.caption(drawing.caption)


def plot(figure: go.Figure, *, key: str) -> None:
    """Show a figure in its own colours, with text and grid in those of the page."""
    is_dark = st.context.theme.type == "dark"
    ink, grid = ("#e6e8eb", "#343a42") if is_dark else ("#24292f", "#e3e5e8")
    figure = go.Figure(figure)
    figure.update_layout(
        font_color=ink, legend_maxheight=4000, hoverlabel_bgcolor="#14171b" if is_dark else "#fff"
    )
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(gridcolor=grid, linecolor=grid, tickcolor=grid)
    st.plotly_chart(figure, theme=None, key=key, config={"displayModeBar": False})


def links(place: str, parent: str, *, is_over: bool, run_id: str = "") -> None:
    """Show the ways from a page to the same run elsewhere: search, report and MLflow.

    Args:
        place: the store.
        parent: the run of the search.
        is_over: whether there is a report.
        run_id: the run of a trial, on its own page.
    """
    with st.container(horizontal=True):
        if run_id:
            st.link_button("Search", f"search?run={parent}")
        if is_over:
            st.link_button("Report", f"report?run={parent}")
        note = None if store.is_server(place) else "Needs `tuneparts ui`, opened once by its link."
        st.link_button("MLflow", source.mlflow_link(place, run_id or parent), help=note)


def stop_button(run: str) -> None:
    """Ask the driver of the run of this name to stop it, confirmed by a second click."""
    key = f"stop-{run}"

    def turn(*, to: bool) -> None:
        st.session_state[key] = to

    if not st.session_state.get(key, False):
        st.button("Stop the search", key=f"{key}-first", on_click=turn, kwargs={"to": True})
        return
    st.warning("Stop the search for good? What it has reported stays; nothing of it goes on.")
    with st.container(horizontal=True):
        is_meant = st.button("Yes, stop the search", key=f"{key}-second", type="primary")
        st.button("No", key=f"{key}-no", on_click=turn, kwargs={"to": False})
    if is_meant:
        command = [sys.executable, "-m", "tuneparts.cli.main", "stop", run]
        with st.spinner("asking the driver"):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        st.info((done.stdout + done.stderr).strip())
        turn(to=False)
