"""What makes a local Ray private, without starting one."""

import os
import socket
import stat

import pytest

from tuneparts.core.errors import SecurityError
from tuneparts.executors.ray import _private

pytestmark = pytest.mark.ray


def test_doors_to_other_machines_are_seen_and_refused() -> None:
    before = _private.wide_doors()
    with socket.socket() as narrow, socket.socket() as wide:
        narrow.bind(("127.0.0.1", 0))
        narrow.listen()
        assert _private.wide_doors() == before
        _private.refuse_wide(before)
        wide.bind(("0.0.0.0", 0))
        wide.listen()
        opened = _private.wide_doors() - before
        assert [int(door.partition(":")[2], 16) for door in opened] == [wide.getsockname()[1]]
        with pytest.raises(SecurityError, match="loopback only"):
            _private.refuse_wide(before)
        _private.refuse_wide(before | opened)  # it was open before Ray was started


def test_the_token_is_for_its_user_and_goes_with_its_folder(monkeypatch) -> None:
    ray_constants = pytest.importorskip("ray._private.ray_constants")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from outside")
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    # The other tests of this process share a Ray, whose token must not be forgotten.
    readings: list[str | None] = []
    monkeypatch.setattr(
        _private, "_read_again", lambda: readings.append(os.environ.get("RAY_AUTH_TOKEN_PATH"))
    )
    before, tokens = dict(os.environ), set()
    for _ in range(2):
        with _private.surroundings() as folder:
            token = folder.parent / "token"
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
            assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(token)
            assert os.environ["RAY_AUTH_MODE"] == "token"
            assert "RAY_AUTH_TOKEN" not in os.environ
            assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
            assert not ray_constants.ENABLE_RAY_CLUSTER
            assert readings[-1] == str(token)
            tokens.add(token.read_text())
        assert not folder.parent.exists()
        assert ray_constants.ENABLE_RAY_CLUSTER
        assert dict(os.environ) == before
        assert readings[-1] == before.get("RAY_AUTH_TOKEN_PATH")
    assert len(tokens) == 2
    assert min(map(len, tokens)) == 64
