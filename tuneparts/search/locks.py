"""The lock of a run's folder: one driver at a time.

`filelock` holds it by `flock`, or where a file system refuses that by a file (`SoftFileLock`).
"""

import errno
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, SoftFileLock, Timeout

from tuneparts.core import atomic
from tuneparts.core.errors import BusyError

_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; a thread that holds it may enter it again.

    The lock of a process that died is free; only without `flock`, and if it ran on another machine,
    has its file to be deleted by hand.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = atomic.inside(folder, folder / "lock")
    try:
        acquired = _acquire(file)
    except Timeout as busy:
        # Who holds it, as the file says; one that was just taken may be empty yet.
        who = file.read_text("utf-8", "replace")[:200] or "another process"
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(file.stat().st_mtime))
        marker = Path(busy.lock_file)
        dead = "" if marker == file else f" If that process is dead, delete {marker}."
        raise BusyError(
            f"one driver at a time runs a search, but {who} is running {file.parent} since "
            f"{since}. Wait for it, or end it.{dead}"
        ) from None
    with acquired as held:
        if held.lock_counter == 1:  # written in place, since the file is locked and not its name
            file.write_text(f"process {os.getpid()} on {platform.node()}", "utf-8")
        yield


def _acquire(file: Path) -> AcquireReturnProxy[FileLock]:
    try:
        return FileLock(file, blocking=False, is_singleton=True, fallback_to_soft=False).acquire()
    except OSError as error:  # `filelock` itself falls back for ENOSYS only
        if error.errno not in _NO_FLOCK:
            raise
        marker = file.with_name("lock.holder")
        return SoftFileLock(marker, blocking=False, is_singleton=True).acquire()
