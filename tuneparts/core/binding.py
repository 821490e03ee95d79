"""Who can reach a server that we start: this machine alone, unless it asks for a password.

Loopback is not private: every user of the machine reaches it. What is served there asks for a token
(see `doorkeeper`).
"""

import ipaddress
import socket

from tuneparts.core.errors import PortError, SecurityError

LOOPBACK = "127.0.0.1"
FORCE = "--without-authentication"
"""The option that opens a door to everybody; long, so that nobody types it by accident."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


def refuse_open(host: str, *, authenticated: bool, forced: bool, cure: str) -> None:
    """Refuse to serve others without a password.

    Args:
        host: what the server would bind to.
        authenticated: whether it asks who is there.
        forced: whether the user named the force option.
        cure: how authentication is switched on, as a sentence.

    Raises:
        SecurityError: Others could reach the server and it would ask for nothing.
    """
    if is_loopback(host) or authenticated or forced:
        return
    raise SecurityError(
        f"a server that others can reach asks for a password, but binding to `{host}` would not. "
        f"{cure} Or stay on {LOOPBACK} and tunnel: `ssh -L PORT:{LOOPBACK}:PORT`. "
        f"To serve everybody regardless, say {FORCE}."
    )


def refuse_used(host: str, port: int) -> None:
    """Refuse a port that a server could not have, before anybody is told to go there.

    Args:
        host: what the server would bind to.
        port: what it would listen on.

    Raises:
        PortError: Another program has it, or this user may not.
    """
    problem = _problem(host, port)
    if problem is not None:
        free = next((n for n in range(port + 1, port + 100) if _problem(host, n) is None), None)
        cure = "" if free is None else f" Choose another: `--port {free}` is free."
        raise PortError(
            f"a server needs a port of its own, but port {port} of {host}: {problem}.{cure}"
        )


def _problem(host: str, port: int) -> str | None:
    """Why a server cannot listen there; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Servers set it too: a port whose last connections are only just closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return None
