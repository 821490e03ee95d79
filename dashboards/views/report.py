"""The report of a search that is over, as it lies on its run."""

import base64

import streamlit as st

from views import parts, source


def show() -> None:
    """The page."""
    place = source.uri()
    runs = source.runs(place)
    if runs.empty:
        parts.empty(place)
        return
    run = parts.chosen(runs)
    text = source.report(place, str(run["parent_run_id"]))
    if text is None:
        source.report.clear()
        st.info("A report is written when the search is over; until then see its page.")
        return
    st.download_button("Download", text, file_name="report.html", mime="text/html")
    # A data address has an origin of its own: what the file does cannot reach this app.
    data = base64.b64encode(text.encode()).decode()
    st.iframe(f"data:text/html;charset=utf-8;base64,{data}", height=1600, alt="report")
