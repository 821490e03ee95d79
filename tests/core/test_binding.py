import socket

import pytest

from tuneparts.core.binding import LOOPBACK, is_loopback, refuse_open, refuse_used
from tuneparts.core.errors import PortError, SecurityError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_this_machine_is_always_allowed(host: str) -> None:
    assert is_loopback(host)
    refuse_open(host, authenticated=False, forced=False, cure="")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.evil"])
def test_a_wider_door_needs_a_password_or_the_words(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SecurityError, match=r"Do this\..*--without-authentication"):
        refuse_open(host, authenticated=False, forced=False, cure="Do this.")
    refuse_open(host, authenticated=True, forced=False, cure="")
    refuse_open(host, authenticated=False, forced=True, cure="")


def test_a_used_port_is_refused_with_a_free_one() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortError, match=rf"port {port} of 127.0.0.1: Address already") as told:
            refuse_used(LOOPBACK, port)
        assert told.value.exit_code == 1
    refuse_used(LOOPBACK, port)
    with pytest.raises(PortError, match="port"):
        refuse_used(LOOPBACK, 70_000)
