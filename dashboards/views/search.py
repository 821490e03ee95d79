"""One search: its answer so far, progress and curves of its arms, and its trials in pages."""

import pandas as pd
import streamlit as st

from tuneparts import schema
from tuneparts.reports import progress
from tuneparts.reports.figures.gallery import draw
from tuneparts.reports.metadata import ReportMetadata
from views import parts, source
from views.searches import remaining

PER_PAGE = 50
_SHOWN = ("trial", "arm", "seed", "outcome", "error", "start")


def show() -> None:
    """Show the page."""
    place = source.uri()
    runs = parts.some_runs(place)
    run = parts.chosen(runs)
    told = source.metadata(place, str(run["parent_run_id"]))
    if told is None:
        st.warning("This run has no metadata: it began with an older version and never ended.")
        return
    st.header(told.question)
    is_running = run["status"] == source.RUNNING
    live = st.fragment(_live, run_every=source.SECONDS if is_running else None)
    live(place, str(run["parent_run_id"]), told)


def _live(place: str, parent: str, told: ReportMetadata) -> None:
    runs = source.runs(place)
    run = runs[runs["parent_run_id"] == parent].iloc[0]
    trials = source.trials(place, run)
    of_arms = progress.arms(told, trials)
    if run["status"] == source.RUNNING:
        part = progress.fraction(told, of_arms)
        st.progress(part, text=remaining(part, trials))
    else:
        st.markdown(f"**{source.run_data(place, run, told).answer}**")
        st.link_button("Report", f"report?run={parent}")
    _arms(told, of_arms)
    metrics = sorted(name for name in map(str, trials.columns) if "/" in name)
    if not metrics:
        st.info("No trial has reported anything yet.")
        return
    first = parts.telling(trials.notna().sum().to_dict(), told.metric)
    metric = st.selectbox("Metric", metrics, index=metrics.index(first), key="metric")
    parts.figure(draw(f"trials:{metric}", source.run_data(place, run, told, metric)), key="trials")
    if (trials["outcome"] == "finished").any():
        st.subheader("Scores and costs")
        parts.table(source.run_data(place, run, told).tables[0])
    _listing(trials, metric)


def _arms(told: ReportMetadata, of_arms: pd.DataFrame) -> None:
    decimals = schema.lookup(told.metric).decimals if told.metric else 4
    st.dataframe(
        of_arms,
        hide_index=True,
        placeholder="",
        column_config={
            "fraction": st.column_config.ProgressColumn("progress", format="percent"),
            "best": st.column_config.NumberColumn(f"best {told.metric}", format=f"%.{decimals}f"),
        },
    )


def _listing(trials: pd.DataFrame, metric: str) -> None:
    st.subheader("Trials")
    left, middle, right = st.columns(3)
    arm = left.selectbox("arm", ["all", *trials["arm"].unique()], key="arm")
    outcome = middle.selectbox("outcome", ["all", *trials["outcome"].unique()], key="outcome")
    rows = trials if arm == "all" else trials[trials["arm"] == arm]
    rows = rows if outcome == "all" else rows[rows["outcome"] == outcome]
    num_pages = max(1, -(-len(rows) // PER_PAGE))
    page = int(right.number_input(f"page of {num_pages}", 1, num_pages, 1, key="page"))
    shown = rows.iloc[(page - 1) * PER_PAGE : page * PER_PAGE]
    links = "trial?id=" + shown["run_id"].astype(str)
    st.dataframe(
        shown[[*_SHOWN, metric]].assign(open=links),
        hide_index=True,
        column_config={"open": st.column_config.LinkColumn("open", display_text="open")},
    )
    st.caption(f"{len(rows):,} of {len(trials):,} trials")
