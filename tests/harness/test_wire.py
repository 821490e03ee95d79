"""A wire carries everything until it is cut, and again once it is mended."""

import os
import socket
from collections.abc import Iterator

import pytest

from tests.harness import wire


@pytest.fixture
def line() -> Iterator[wire.Wire]:
    reason = wire.why_not()
    if reason is not None:
        pytest.skip(reason)
    with wire.Wire() as made:
        yield made


def test_cut_and_mended(line: wire.Wire) -> None:
    network, _, number = line.address.rpartition(".")
    near = f"{network}.{int(number) - 1}"
    with socket.create_server((near, 0)) as server:
        address = f"{near}:{server.getsockname()[1]}"
        assert line.reaches(address)
        line.cut()
        assert not line.reaches(address)
        line.mend()
        assert line.reaches(address)


def test_the_far_end_has_a_loopback_of_its_own(line: wire.Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not line.reaches(f"127.0.0.1:{server.getsockname()[1]}")


def test_nothing_is_left_behind(line: wire.Wire) -> None:
    with wire.Wire() as other:
        assert other.name in _namespaces()
        assert other.name != line.name
    assert other.name not in _namespaces()


def _namespaces() -> list[str]:
    return os.listdir("/run/netns")
