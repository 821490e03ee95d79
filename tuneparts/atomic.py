"""Files that are replaced as a whole: a reader sees the old content or the new, never a part.

The content is written to a hidden sibling first and then renamed, which POSIX does in one step.
"""

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tuneparts.errors import SecurityError


@contextmanager
def replacing(path: Path, *, fsync: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` when the block ends well.

    If the block raises, `path` stays as it was and nothing is left behind. Missing parent folders
    are made.

    Args:
        path: the file to replace.
        fsync: wait until the content is on the disk before the rename, so that a power cut
            cannot leave an empty file under the new name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with replacing(path) as file:
        ...     _ = file.write(b"1 2 3")
        >>> path.read_text()
        '1 2 3'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The random part keeps two writers of one path apart, also in two threads of one process.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def open_in_place(path: Path, flags: int) -> int:
    """Open a file of a run's folder for writing in place; a link there is not followed.

    A folder may have come from somebody else, and a link in it would let the writer change any
    file of this user.

    Args:
        path: the file; made if missing.
        flags: of `os.open`, besides those for making it.

    Returns:
        The file descriptor.

    Raises:
        SecurityError: The path is a link, or no plain file.
    """
    try:
        # Not blocking: a pipe would wait for its other end.
        found = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise _no_plain_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise _no_plain_file(path)
    return found


def _no_plain_file(path: Path) -> SecurityError:
    return SecurityError(
        f"a run's folder holds plain files, but {path} is a link or a device. Look at where the "
        "folder comes from, and put a file in its place."
    )


def write_bytes(path: Path, content: bytes, *, fsync: bool = False) -> None:
    """Replace the content of a file in one step; see `replacing`."""
    with replacing(path, fsync=fsync) as file:
        file.write(content)


def write_text(path: Path, text: str, *, fsync: bool = False) -> None:
    r"""Replace the content of a file by UTF-8 text in one step; line ends stay `\n`."""
    write_bytes(path, text.encode(), fsync=fsync)
