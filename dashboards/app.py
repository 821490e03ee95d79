"""The live dashboard: `tuneparts dashboard`. Shows the store, and can ask a driver to stop."""

import streamlit as st
from views import compare, report, search, searches, trial

st.set_page_config(page_title="tuneparts", layout="wide")
st.navigation(
    [
        st.Page(searches.show, title="Searches", url_path="searches", default=True),
        st.Page(search.show, title="Search", url_path="search"),
        st.Page(trial.show, title="Trial", url_path="trial"),
        st.Page(compare.show, title="Side by side", url_path="compare"),
        st.Page(report.show, title="Report", url_path="report"),
    ],
    position="top",
).run()
