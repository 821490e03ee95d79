"""Another user of this machine, before the pages that we serve."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NOBODY = 65534
HANDSHAKE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user that has nothing to do with us."""
    if os.geteuid() != 0 or shutil.which(words[0]) is None:
        pytest.skip(f"only root can run {words[0]} as another user")
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        timeout=120,
    )


@pytest.fixture
def serve(
    results: Path, tmp_path: Path, unused_tcp_port: int
) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Starts `tuneparts VERB`; returns its address and the whole link."""
    started: list[subprocess.Popen[bytes]] = []

    def start(verb: str) -> tuple[str, str]:
        log = tmp_path / f"{verb}.log"
        words = [sys.executable, "-m", "tuneparts.cli.main", verb, "--port", str(unused_tcp_port)]
        with log.open("wb") as file:
            started.append(subprocess.Popen(words, stdout=file, stderr=file))
        address = f"http://127.0.0.1:{unused_tcp_port}"
        limit = time.monotonic() + 200
        while ask(address) not in {200, 303, 401}:
            assert time.monotonic() < limit, log.read_text()
            assert started[-1].poll() is None, log.read_text()
            time.sleep(0.5)
        link = re.search(r"http://\S+", log.read_text())
        assert link is not None
        return address, link[0]

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def ask(address: str, **headers: str) -> int:
    """The status of a page, asked for by ourselves; 0 while nobody answers."""
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            status: int = answer.status
        return status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def asked_by_nobody(address: str, body: object = None, **headers: str) -> int:
    """The status of a page for another user."""
    words = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]
    words += [word for pair in headers.items() for word in ("--header", ": ".join(pair))]
    words += [] if body is None else ["--json", json.dumps(body)]
    return int(as_nobody(*words, address).stdout)


@pytest.mark.mlflow
def test_the_ui_shows_another_user_nothing(serve) -> None:
    address, link = serve("ui")
    assert asked_by_nobody(address) == 401
    here = {"name": "x", "artifact_location": "file:///tmp/x"}
    assert asked_by_nobody(f"{address}/api/2.0/mlflow/experiments/create", here) == 401
    assert asked_by_nobody(f"{address}/get-artifact?run_uuid=1&path=x") == 401
    search = f"{address}/ajax-api/2.0/mlflow/experiments/search"
    assert asked_by_nobody(search, {"max_results": 1}) == 401
    assert asked_by_nobody(address, Authorization="Bearer guess") == 401
    token = link.partition("token=")[2].partition("#")[0]
    assert ask(link) == 401  # a program without cookies is sent on, and has none
    assert ask(address, Authorization=f"Bearer {token}") == 200


def test_the_dashboard_shows_another_user_and_another_host_nothing(serve) -> None:
    pytest.importorskip("streamlit", reason="the extra `dashboard` is not installed")
    address, link = serve("dashboard")
    stream = f"{address}/_stcore/stream"
    assert asked_by_nobody(address) == 401
    assert asked_by_nobody(stream, **HANDSHAKE) == 403
    token = link.partition("token=")[2]
    port = address.rpartition(":")[2]
    allowed = {"Cookie": f"tuneparts-{port}={token}"}
    assert ask(address, **allowed) == 200
    foreign = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
    # Even with the cookie: a web page that calls itself by this address.
    assert asked_by_nobody(stream, **HANDSHAKE, **allowed, **foreign) == 403
