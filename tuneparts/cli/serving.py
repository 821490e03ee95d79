"""The verbs that serve pages: ui, dashboard."""

import contextlib
import html
import importlib.util
import os
import socket
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import tuneparts
from tuneparts.cli import _options
from tuneparts.core import access, settings
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.tracking import guarded, store

app = typer.Typer()
PORT = 5000
"""Where MLflow's UI listens unless another port is given."""
_OPTIONS = {
    "server.address": access.LOOPBACK,
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "logger.hideWelcomeMessage": "true",  # its link is without the token
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    # Streamlit's own red would look like failure. A colour for both would make every page light.
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#3A97D0",
}
_HOSTS = (access.LOOPBACK, "localhost")
"""Names that a browser may call it by: a web page elsewhere cannot pass for it."""


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = PORT,
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    without_authentication: Annotated[
        bool, typer.Option("--without-authentication", help="Let everybody in.")
    ] = False,
    open_page: _options.Open = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request.")] = False,
) -> None:
    """Serve the MLflow UI on the store: on this machine, or wider with a login."""
    from tuneparts.tracking.card import RUNS_VIEW

    uri = settings.current().tracking_uri
    if store.is_server(uri):
        print(f"The store is a server; open {redact(uri)}")
        if open_page:
            _open_now(uri)
        return
    login, forced = access.tracking_login(), without_authentication
    server = guarded.plan(uri, host=host, port=port, login=login, forced=forced, is_verbose=verbose)
    access.refuse_used(host, port)
    where = access.LOOPBACK if access.is_loopback(host) else host
    token = "" if server.token is None else f"?token={server.token}"
    address = f"http://{where}:{port}/{token}#/experiments?{RUNS_VIEW}"
    asks = "" if login is None else f", as {login.user}"
    print(f"MLflow UI on {address}{asks} (Ctrl-C ends it)", flush=True)
    if open_page:
        _open_when_ready(address, where, port)
    guarded.run(server)


@app.command()
def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8501,
    open_page: _options.Open = False,
) -> None:
    """Watch searches run and compare them in a browser, on this machine only."""
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError(
            "the dashboard needs Streamlit, which is not installed. "
            "Run `pip install 'tuneparts[dashboard]'`."
        )
    package = Path(tuneparts.__file__).parent  # the app is next to it in a checkout, else inside
    places = [package.parent / "dashboards" / "auth.py", package / "_dashboards" / "auth.py"]
    found = places[0] if places[0].is_file() else places[1]
    access.refuse_used(access.LOOPBACK, port)
    token = access.new_token()
    address = f"http://{access.LOOPBACK}:{port}/?token={token}"
    print(f"Dashboard on {address} (Ctrl-C ends it)", flush=True)
    if open_page:
        _open_when_ready(address, access.LOOPBACK, port)
    words = [f"--{name}={value}" for name, value in {**_OPTIONS, "server.port": port}.items()]
    words += [f"--server.allowedHosts={host}" for host in _HOSTS]
    command = [sys.executable, "-m", "streamlit", "run", str(found), *words]
    os.execve(command[0], command, {**os.environ, access.VARIABLE: token})


READ_BY_THEN = 30.0
"""Seconds after which a browser has read the file."""


def _open_when_ready(address: str, host: str, port: int) -> None:
    """Open a page as soon as somebody listens on the port, in a child process; returns at once."""
    if os.fork():
        return
    try:
        os.setsid()  # Ctrl-C is for the server
        if _answers(host, port, patience=120):
            _open_now(address)
    finally:
        os._exit(0)


def _open_now(address: str) -> None:
    """Lead a browser there by a private file: an address on a command line can be read by all."""
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="tuneparts-") as file:
        file.write(f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">')
        file.flush()
        webbrowser.open(Path(file.name).as_uri())
        time.sleep(READ_BY_THEN)


def _answers(host: str, port: int, patience: float) -> bool:
    """Wait for so many seconds until somebody listens on a port; whether somebody does."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return True
        time.sleep(0.2)
    return False
