"""Open a page in a browser once its server answers: `--open` of `ui` and `dashboard`.

A process of its own waits, because a server takes the place of the one that was called. The address
may carry a token, so it stands on no command line, which other users could read: it travels in the
environment, and the browser is given a file that only this user can read and that leads there.
"""

import contextlib
import html
import os
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from pathlib import Path

VARIABLE = "TUNEPARTS_OPEN"
PATIENCE = 120.0
"""Seconds that a server may take to answer."""
READ_BY_THEN = 30.0
"""Seconds after which a browser has read the file."""


def open_when_ready(address: str, host: str, port: int) -> None:
    """Open a page as soon as somebody listens on the port; returns at once."""
    subprocess.Popen(
        [sys.executable, "-m", "tuneparts.cli.opening", host, str(port)],
        env={**os.environ, VARIABLE: address},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the server
    )


def open_now(address: str) -> None:
    """Lead a browser to an address by way of a file, which is removed a little later."""
    page = f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">'
    handle, name = tempfile.mkstemp(suffix=".html", prefix="tuneparts-")  # readable by its owner
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(page)
    try:
        webbrowser.open(Path(name).as_uri())
        time.sleep(READ_BY_THEN)
    finally:
        os.unlink(name)


def answers(host: str, port: int, patience: float) -> bool:
    """Wait until somebody listens on a port; returns whether somebody does."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return True
        time.sleep(0.2)
    return False


def main() -> None:
    """Wait and open, as `open_when_ready` asked."""
    host, port = sys.argv[1], int(sys.argv[2])
    if answers(host, port, PATIENCE):
        open_now(os.environ[VARIABLE])


if __name__ == "__main__":
    main()
