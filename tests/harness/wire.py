"""A network of its own for one node: a namespace and a wire that can be cut and mended."""

import os
import secrets
import shutil
import subprocess
import sys
from types import TracebackType


def why_not() -> str | None:
    """What this machine lacks for it, as a sentence; None when it has all."""
    if shutil.which("ip") is None:
        return "the program `ip` is not installed (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are made by root only"
    try:
        with Wire():
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made: {error.stderr.decode().strip()}"


class Wire:
    """A namespace at the other end of a wire to this machine; a context manager.

    What runs inside reaches this machine under its addresses on networks, and nothing else.
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
        try:
            self._lay()
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def _lay(self) -> None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for words in (["link", "delete", self._near], ["netns", "delete", self.name]):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    def inside(self, command: list[str]) -> list[str]:
        """The command that runs another one at the far end."""
        return ["ip", "netns", "exec", self.name, *command]

    def reaches(self, address: str) -> bool:
        """Whether the far end can connect to HOST:PORT."""
        host, _, port = address.rpartition(":")
        program = f"import socket; socket.create_connection(({host!r}, {port}), timeout=1).close()"
        command = self.inside([sys.executable, "-c", program])
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def cut(self) -> None:
        """Nothing steps any more, and neither side is told."""
        _ip("link", "set", self._near, "down")

    def mend(self) -> None:
        """Everything steps again."""
        _ip("link", "set", self._near, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
