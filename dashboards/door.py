"""Serves the dashboard to who knows its token: other users of a machine reach its loopback too."""

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from tuneparts.core.access import TokenAuth

app = App(Path(__file__).parent / "app.py", middleware=[Middleware(TokenAuth)])
