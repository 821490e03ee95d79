"""Who can reach a server that we start: this machine alone, unless it asks for a password.

Loopback is not private: every user of the machine reaches it. What is served there asks for a token
(see `doorkeeper`).
"""

import ipaddress

from tuneparts.errors import SecurityError

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
