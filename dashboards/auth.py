"""Serves the dashboard behind a token: other users of the machine can reach its loopback."""

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from tuneparts.core.access import TokenAuth

app = App(Path(__file__).parent / "app.py", middleware=[Middleware(TokenAuth)])
