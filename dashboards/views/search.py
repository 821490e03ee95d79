"""One search: its answer, progress and curves of its arms, hyperparameters and trials.

Of a search that is over the figures of its report follow; one that runs on this machine can be
stopped.
"""

from typing import Any

import pandas as pd
import plotly.io
import streamlit as st

from tuneparts.core import schema
from tuneparts.results.figures.gallery import draw
from tuneparts.results.page import address
from tuneparts.search.card import RunCard
from views import parts, progress, source
from views.searches import remaining

PER_PAGE = 50
_SHOWN = ("trial", "arm", "seed", "outcome", "error", "start")


def show() -> None:
    """Show the page."""
    place = source.uri()
    runs = parts.some_runs(place)
    run = parts.chosen(runs)
    card = source.metadata(place, str(run["parent_run_id"]))
    if card is None:
        st.warning("The store has no metadata of this run.")
        return
    st.header(card.question)
    is_running = run["status"] == source.RUNNING
    live = st.fragment(_live, run_every=source.SECONDS if is_running else None)
    live(place, str(run["parent_run_id"]), card)


def _live(place: str, parent: str, card: RunCard) -> None:
    runs = source.runs(place)
    run = runs[runs["parent_run_id"] == parent].iloc[0]
    trials = source.trials(place, run)
    of_arms = progress.arms(card, trials)
    if run["status"] == source.RUNNING:
        part = progress.fraction(card, of_arms)
        st.progress(part, text=remaining(part, trials))
    else:
        st.markdown(f"**{source.run_data(place, run, card).answer}**")
    is_over = run["status"] != source.RUNNING
    parts.links(place, parent, is_over=is_over)
    if not is_over:
        _arms(card, of_arms)
        name = source.folder_name(place, parent)
        if name is not None:  # the run lies on this machine
            parts.stop_button(name)
    elif (trials["outcome"] == "finished").any():
        _scores(place, run, card)
    metrics = sorted(name for name in map(str, trials.columns) if "/" in name)
    if not metrics:
        st.info("No trial has reported anything yet.")
        return
    first = parts.telling(trials.notna().sum().to_dict(), card.metric)
    metric = st.selectbox("Metric", metrics, index=metrics.index(first), key="metric")
    parts.figure(draw(f"trials:{metric}", source.run_data(place, run, card, metric)), key="trials")
    hypers = source.hypers(place, run)
    if hypers:
        parts.figure(draw("hypers", source.run_data(place, run, card, *hypers)), key="hypers")
    if is_over:
        _figures(place, parent, card)
    elif (trials["outcome"] == "finished").any():
        _scores(place, run, card)
    _listing(trials, metric)


def _scores(place: str, run: "pd.Series[Any]", card: RunCard) -> None:
    st.subheader("Scores and costs")
    parts.table(source.run_data(place, run, card).tables[0])


def _figures(place: str, parent: str, card: RunCard) -> None:
    """The figures of the report that are not on this page already, each behind its name."""
    names = [address(request) for request in card.figures if request != "hypers"]
    found = source.figures(place, parent, tuple(names))
    if not found:
        return
    st.subheader("Figures of the report")
    chosen = st.pills("figure", list(found), default=next(iter(found)), key="figure")
    if chosen:
        parts.plot(plotly.io.from_json(found[chosen]), key=f"report-{chosen}")


def _arms(card: RunCard, of_arms: pd.DataFrame) -> None:
    decimals = schema.lookup(card.metric).decimals if card.metric else 4
    parts.whole(
        of_arms,
        placeholder="",
        column_config={
            "fraction": st.column_config.ProgressColumn("progress", format="percent"),
            "best": st.column_config.NumberColumn(f"best {card.metric}", format=f"%.{decimals}f"),
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
    seconds = (shown["end"] - shown["start"]).dt.total_seconds()
    parts.whole(
        shown[[*_SHOWN, metric]].assign(seconds=seconds, open=links),
        column_config={"open": st.column_config.LinkColumn("open", display_text="open")},
    )
    st.caption(f"{len(rows):,} of {len(trials):,} trials")
