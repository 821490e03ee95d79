"""Files that are replaced by a rename: a reader sees the old content or the new, never a part."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tuneparts.core.errors import SecurityError


@contextmanager
def replacing(path: Path, *, fsync: bool = False) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` if the block ends well; `fsync` is for power cuts."""
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


def inside(folder: Path, path: Path) -> Path:
    """A path in a run's folder, to read, write or delete; a link out of the folder is refused."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SecurityError(f"{path}: a link leads out of {folder}. Remove it.")
    return path


def write_bytes(path: Path, content: bytes, *, fsync: bool = False) -> None:
    """Replace the content of a file in one step; see `replacing`."""
    with replacing(path, fsync=fsync) as file:
        file.write(content)


def write_text(path: Path, text: str, *, fsync: bool = False) -> None:
    r"""Replace the content of a file by UTF-8 text in one step; line ends stay `\n`."""
    write_bytes(path, text.encode(), fsync=fsync)
