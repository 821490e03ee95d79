"""A wire carries everything until it is cut, and again once it is mended."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tuneparts.bench import wire

CONNECT = "import socket; socket.create_connection(({host!r}, {port}), timeout=1).close()"


@pytest.fixture
def line() -> Iterator[wire.Wire]:
    reason = wire.why_not()
    if reason is not None:
        pytest.skip(reason)
    with wire.Wire() as made:
        yield made


def _reaches(line: wire.Wire, host: str, port: int) -> bool:
    program = CONNECT.format(host=host, port=port)
    command = line.inside([sys.executable, "-c", program])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_cut_and_mended(line: wire.Wire) -> None:
    host = line.address.rpartition(".")[0] + f".{int(line.address.rpartition('.')[2]) - 1}"
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        assert _reaches(line, host, port)
        line.cut()
        assert not _reaches(line, host, port)
        line.mend()
        assert _reaches(line, host, port)


def test_only_this_machine_is_reached(line: wire.Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not _reaches(line, "127.0.0.1", server.getsockname()[1])


def test_nothing_is_left_behind(line: wire.Wire) -> None:
    with wire.Wire() as other:
        assert other.name in _namespaces()
        assert other.name != line.name
    assert other.name not in _namespaces()


def _namespaces() -> list[str]:
    return os.listdir("/run/netns")
