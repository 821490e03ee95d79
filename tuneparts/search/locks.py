"""The lock of a run's folder: one driver at a time, also where the file system knows no locks.

Where there is `flock`, the kernel holds the lock, and frees it when the driver dies. Some network
file systems refuse it. There the lock is a file that is created exclusively, says who holds it,
and is touched while its holder lives.
"""

import errno
import fcntl
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tuneparts import atomic
from tuneparts.errors import BusyError

_held: ContextVar[frozenset[Path]] = ContextVar("run folders that this thread has locked")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
HEARTBEAT = 10.0
"""Seconds between two signs of life of a holder."""
STALE = 60.0
"""Seconds without a sign of life after which a holder on another machine is taken for dead."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, so that only one driver works in it.

    A thread that holds it may enter it again: a caller that prepares something in the folder takes
    the lock first and then calls `executors.execute`. The lock of a process that died is free.

    Raises:
        BusyError: Another process or thread holds it.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with lock(folder), lock(folder):
        ...     print("mine")
        mine
    """
    key = folder.resolve()
    held = _held.get(frozenset())
    if key in held:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        token = _held.set(held | {key})
        try:
            yield
        finally:
            _held.reset(token)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with atomic.inside(folder, folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _busy(folder, _parse(file.read())) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            has_flock = False
        else:
            has_flock = True
            file.truncate(0)
            file.write(json.dumps(_myself()))
            file.flush()
        if has_flock:
            yield
    if not has_flock:
        with _created(folder):
            yield


@contextmanager
def _created(folder: Path) -> Iterator[None]:
    """Hold a lock that is a file which only one process can create."""
    path = folder / "lock.holder"
    me = {**_myself(), "key": uuid.uuid4().hex}
    while True:
        with suppress(FileExistsError), path.open("x") as file:
            file.write(json.dumps(me))
            break
        holder = _read(path)
        if holder is not None and _is_alive(holder, path):
            raise _busy(folder, holder)
        # Renaming is atomic: of several that find the lock stale, one alone takes it away.
        grave = path.with_name(f".lock.{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            path.rename(grave)
            if _read(grave) != holder:  # another was faster, and this one is its lock
                with suppress(FileExistsError):
                    os.link(grave, path)
        grave.unlink(missing_ok=True)
    over = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, over), daemon=True)
    beats.start()
    try:
        yield
    finally:
        over.set()
        beats.join()
        if _read(path) == me:  # else it was taken for dead, and the lock is another's
            path.unlink(missing_ok=True)


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(path)


def _is_alive(holder: dict[str, Any], path: Path) -> bool:
    """Whether a holder lives: its process where it is on this machine, else its heartbeat."""
    if holder.get("host") == platform.node():
        pid = holder.get("pid", 0)
        return type(pid) is int and _process_start(pid) == holder.get("process")
    # Both times are by the clock of the file system, so that those of machines may differ.
    probe = path.with_name(f".lock.{uuid.uuid4().hex}")
    probe.touch()
    try:
        return probe.stat().st_mtime - path.stat().st_mtime < STALE
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _myself() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "pid": pid,
        "host": platform.node(),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "process": _process_start(pid),
    }


def _process_start(pid: int) -> str | None:
    """What tells a process from a later one with its number; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self").exists() else _answers(pid)
    return stat[19]  # clock ticks from the start of the machine


def _answers(pid: int) -> str | None:
    """As `_process_start` where there is no /proc: whether the process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it belongs to someone else
    return "alive"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return _parse(path.read_text("utf-8", "replace"))
    except FileNotFoundError:
        return None


def _parse(text: str) -> dict[str, Any]:
    """What a lock file says; an empty one is being written, and an old one is a number."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = {}
    return content if isinstance(content, dict) else {"pid": content}


def _busy(folder: Path, holder: dict[str, Any]) -> BusyError:
    host, since = holder.get("host"), holder.get("time")
    where = f" on {host}" if host else ""
    when = f" since {since}" if since else ""
    return BusyError(
        f"one driver at a time runs a search, but process {holder.get('pid', '?')}{where} is "
        f"running {folder}{when}. Wait for it, or end it."
    )
