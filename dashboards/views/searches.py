"""The list of searches: how far each is or what it found, with a link to it."""

from typing import Any

import pandas as pd
import streamlit as st

from tuneparts.results.progress import clock
from views import parts, progress, source

PER_PAGE = 15


def show() -> None:
    """Show the page."""
    place = source.uri()
    parts.some_runs(place)
    st.title("Searches")
    _listing(place)


@st.fragment(run_every=source.SECONDS)
def _listing(place: str) -> None:
    runs = source.runs(place)
    num_pages = -(-len(runs) // PER_PAGE)
    page = int(st.number_input("page", 1, num_pages, 1)) if num_pages > 1 else 1
    for _, run in runs.iloc[(page - 1) * PER_PAGE : page * PER_PAGE].iterrows():
        _card(place, run)
    st.caption(f"{len(runs)} so far, in {place}")


def _card(place: str, run: "pd.Series[Any]") -> None:
    parent = str(run["parent_run_id"])
    card = source.metadata(place, parent)
    with st.container(border=True):
        left, right = st.columns([3, 1])
        left.markdown(f"**{parts.title(run)}** · {str(run['status']).lower()}")
        if card is not None:
            left.markdown(card.question)
            if answer := source.answer(place, run, card):
                left.markdown(f"**{answer}**")
        left.caption(_counts(run))
        right.link_button("Open", f"search?run={parent}")
        if run["status"] == source.RUNNING and card is not None:
            trials = source.trials(place, run)
            part = progress.fraction(card, progress.arms(card, trials))
            left.progress(part, text=remaining(part, trials))


def _counts(run: "pd.Series[Any]") -> str:
    kinds = {
        "open": "running",
        **{kind: kind for kind in ("finished", "stopped", "failed", "killed")},
    }
    found = [f"{run[kind]} {words}" for words, kind in kinds.items() if run[kind]]
    return "trials: " + (", ".join(found) or "none yet") + f" · commit {run['commit']}"


def remaining(part: float, trials: pd.DataFrame) -> str:
    """Say in words which share is done, the time spent and the time left."""
    spent = progress.seconds_spent(trials, source.now())
    left = progress.seconds_left(part, spent)
    text = f"{part:.0%} · {clock(spent)} elapsed"
    return text if left is None else f"{text}, about {clock(left)} left"
