"""`tuneparts dashboard`: the live view in a browser, on this machine and for its user only."""

import importlib.util
import os
import sys
from pathlib import Path

import tuneparts
from tuneparts import binding, doorkeeper
from tuneparts.cli import opening
from tuneparts.errors import ConfigError

_OPTIONS = {
    "server.address": binding.LOOPBACK,
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "logger.hideWelcomeMessage": "true",  # its link is without the token
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    # Streamlit's own red would look like failure. A colour for both would make every page light.
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#3A97D0",
}
_HOSTS = (binding.LOOPBACK, "localhost")
"""Names that a browser may call it by: a web page elsewhere cannot pass for it."""


def app() -> Path:
    """The file that serves the app: beside the package in a checkout, inside it when installed."""
    package = Path(tuneparts.__file__).parent
    places = [package.parent / "dashboards" / "door.py", package / "_dashboards" / "door.py"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(f"the dashboard is a file, but neither {places[0]} nor {places[1]} is.")
    return found


def command(port: int) -> list[str]:
    """What serves the dashboard; telemetry off, loopback only. It needs a token to start."""
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError(
            "the dashboard needs Streamlit, which is not installed. "
            "Run `pip install 'tuneparts[dashboard]'`."
        )
    options = {**_OPTIONS, "server.port": str(port)}
    words = [f"--{name}={value}" for name, value in options.items()]
    words += [f"--server.allowedHosts={host}" for host in _HOSTS]
    return [sys.executable, "-m", "streamlit", "run", str(app()), *words]


def dashboard(port: int, *, open_page: bool = False) -> None:
    """Serve it in place of this process."""
    words, token = command(port), doorkeeper.new_token()
    binding.refuse_used(binding.LOOPBACK, port)
    address = f"http://{binding.LOOPBACK}:{port}/?token={token}"
    print(f"Dashboard on {address} (Ctrl-C ends it)", flush=True)
    if open_page:
        opening.open_when_ready(address, binding.LOOPBACK, port)
    os.execve(words[0], words, {**os.environ, doorkeeper.VARIABLE: token})
