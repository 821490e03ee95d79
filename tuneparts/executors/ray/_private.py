"""What makes a local Ray private: loopback only, with its own token and folder.

By itself Ray listens on all interfaces, lets others read the token, and leaves the logs of its
workers in a folder of the machine.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneparts.core.errors import SecurityError

_LOOPBACK_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LISTENS = "0A"
_LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
_LONGEST_FOLDER = 40
"""Ray keeps sockets in its folder, and the path of a socket has at most 107 characters."""


@contextmanager
def surroundings() -> Iterator[Path]:
    """Prepare for a private Ray; yields the folder for all that it writes, which goes at the end.

    Shut Ray down inside the block. Afterwards the environment of this process is as it was.
    """
    from ray._private import ray_constants

    before, base = ray_constants.ENABLE_RAY_CLUSTER, tempfile.gettempdir()
    base = base if len(base) <= _LONGEST_FOLDER else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="tuneparts-", dir=base))  # mode 700
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    values = {
        _LOOPBACK_SWITCH: "0",  # for machines that form no cluster
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    try:
        ray_constants.ENABLE_RAY_CLUSTER = False  # Ray has read the switch when it was imported
        with _environment(values, without=("RAY_AUTH_TOKEN",)):
            yield folder / "ray"  # not the folder itself: Ray opens it to everybody
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(values: Mapping[str, str], *, without: tuple[str, ...]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (*values, *without)}
    for name in without:
        os.environ.pop(name, None)
    os.environ.update(values)
    _read_again()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _read_again()


def _read_again() -> None:
    """Make a Ray that was imported before forget the token that it has read."""
    if "ray" in sys.modules:
        from ray import _raylet

        core: Any = _raylet
        core.Config.initialize("")  # first: its threads must not look for a token that is gone
        core.AuthenticationTokenLoader.instance().reset_cache()


def refuse_wide(before: set[str]) -> None:
    """Raise if this process, or one it started, listens where `wide_doors` did not say before."""
    opened = wide_doors() - before
    if opened:
        raise SecurityError(
            "a local Ray listens on loopback only, but this one also listens to other machines, at "
            f"{', '.join(sorted(opened))}. Do not start or configure Ray in the search file."
        )


def wide_doors() -> set[str]:
    """Addresses, as the kernel writes them, where this process and its descendants listen widely.

    None on systems without `/proc`.
    """
    if not Path("/proc/net/tcp").exists():
        return set()
    sockets = {socket for pid in _family() for socket in _sockets(pid)}
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text("ascii").splitlines()[1:] if table.exists() else []
        for address, state, inode in ((f[1], f[3], f[9]) for f in map(str.split, lines)):
            is_wide = address.partition(":")[0] not in _LOOPBACK
            if state == _LISTENS and inode in sockets and is_wide:
                found.add(address)
    return found


def _family() -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)] = int(fields[1])
    members = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:  # it has just ended, or belongs to another user
        pass
    return found
