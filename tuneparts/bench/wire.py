"""A network of its own for one node: a namespace and a wire that can be cut and mended."""

import os
import secrets
import shutil
import subprocess
from types import TracebackType


def why_not() -> str | None:
    """What this machine lacks for it, as a sentence; None when it has all."""
    if shutil.which("ip") is None:
        return "the program `ip` is not installed (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are made by root only"
    name = f"tp{secrets.token_hex(3)}"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if probe.returncode:
        return f"no network namespace can be made: {probe.stderr.decode().strip()}"
    _ip("netns", "delete", name)
    return None


class Wire:
    """A namespace at the other end of a wire to this machine; a context manager.

    What runs inside reaches this machine under any of its addresses, and nothing else.
    """

    def __init__(self) -> None:
        key = secrets.token_bytes(2)
        self.name = f"tp{key.hex()}"
        self._near, self._far = f"{self.name}a", f"{self.name}b"
        # 198.18.0.0/15 is kept for tests of networks (RFC 2544); each wire has four addresses.
        third, fourth = key[0], key[1] & 0xFC
        self.address = f"198.18.{third}.{fourth + 2}"
        self._gate = f"198.18.{third}.{fourth + 1}"

    def __enter__(self) -> "Wire":
        _ip("netns", "add", self.name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
        _ip("link", "set", self._far, "netns", self.name)
        _ip("address", "add", f"{self._gate}/30", "dev", self._near)
        _ip("link", "set", self._near, "up")
        inside = ("-netns", self.name)
        _ip(*inside, "address", "add", f"{self.address}/30", "dev", self._far)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", self._far, "up")
        _ip(*inside, "route", "add", "default", "via", self._gate)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _ip("link", "delete", self._near)
        _ip("netns", "delete", self.name)

    def inside(self, command: list[str]) -> list[str]:
        """The command that runs another one at the far end."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        """Nothing passes any more, and neither side is told."""
        _ip("link", "set", self._near, "down")

    def mend(self) -> None:
        """Everything passes again."""
        _ip("link", "set", self._near, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
