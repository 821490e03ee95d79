"""The page of a finished search's report, read from the artifacts of its run."""

from html import escape

import streamlit as st

from views import parts, source

HEIGHT = 1600
_STYLE = f'style="border: 0; width: 100%; height: {HEIGHT - 20}px"'


def show() -> None:
    """Show the page."""
    place = source.uri()
    runs = parts.some_runs(place)
    run = parts.chosen(runs)
    text = source.report(place, str(run["parent_run_id"]))
    if text is None:
        source.report.clear()
        st.info("A report is written when the search is over; until then see its page.")
        return
    st.download_button("Download", text, file_name="report.html", mime="text/html")
    # Inside a sandbox: what the file does cannot reach this app.
    inner = f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{escape(text)}" {_STYLE}>'
    st.iframe(f"<!DOCTYPE html>{inner}</iframe>", height=HEIGHT, alt="report")
