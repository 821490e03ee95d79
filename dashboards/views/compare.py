"""Two searches side by side: the same table and the same figure of each."""

from typing import Any

import pandas as pd
import streamlit as st

from tuneparts.results.figures.gallery import draw
from views import parts, source


def show() -> None:
    """Show the page."""
    place = source.uri()
    runs = parts.some_runs(place)
    st.title("Side by side")
    for position, (column, key) in enumerate(zip(st.columns(2), ("left", "right"), strict=True)):
        with column:
            run = parts.chosen(runs, key=key, label=key, nth=position)
            _half(place, run, key)


def _half(place: str, run: "pd.Series[Any]", key: str) -> None:
    card = source.metadata(place, str(run["parent_run_id"]))
    if card is None:
        st.warning("The store has no metadata of this run.")
        return
    st.subheader(card.question)
    metric = "test/accuracy"
    run_data = source.run_data(place, run, card, metric)
    st.markdown(run_data.answer)
    parts.figure(draw(f"accuracy:{metric}", run_data), key=f"accuracy-{key}")
    for table in run_data.tables:
        parts.table(table)
