"""`tuneparts dashboard`: the live view in a browser, on this machine only."""

import importlib.util
import os
import sys
from pathlib import Path

import tuneparts
from tuneparts import binding
from tuneparts.errors import ConfigError

_OPTIONS = {
    "server.address": binding.LOOPBACK,
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "theme.base": "light",
    "theme.primaryColor": "#0072B2",  # Streamlit's own red would look like failure
}


def app() -> Path:
    """The file of the app: beside the package in a checkout, inside it when installed."""
    package = Path(tuneparts.__file__).parent
    places = [package.parent / "dashboards" / "app.py", package / "_dashboards" / "app.py"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError(f"the dashboard is a file, but neither {places[0]} nor {places[1]} is.")
    return found


def command(port: int) -> list[str]:
    """What serves the dashboard; telemetry off, loopback only."""
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError(
            "the dashboard needs Streamlit, which is not installed. "
            "Run `pip install 'tuneparts[dashboard]'`."
        )
    options = {**_OPTIONS, "server.port": str(port)}
    words = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "streamlit", "run", str(app()), *words]


def dashboard(port: int) -> None:
    """Serve it in place of this process."""
    words = command(port)
    print(f"Dashboard on http://{binding.LOOPBACK}:{port} (Ctrl-C ends it)", flush=True)
    os.execv(words[0], words)
