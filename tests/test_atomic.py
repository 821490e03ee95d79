import errno
import os
import threading
from pathlib import Path

import pytest

from tuneparts import atomic
from tuneparts.errors import SecurityError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("fsync", [False, True])
def test_content_replaces_what_was_there_and_leaves_nothing_else(tmp_path, fsync) -> None:
    path = tmp_path / "deep" / "file.txt"
    atomic.write_text(path, "old", fsync=fsync)
    atomic.write_bytes(path, b"new", fsync=fsync)
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file.txt"]


def test_text_keeps_its_line_ends(tmp_path) -> None:
    atomic.write_text(tmp_path / "file", "ä\nb\r\n")
    assert (tmp_path / "file").read_bytes() == "ä\nb\r\n".encode()


def test_a_block_that_fails_leaves_the_old_content_and_no_litter(tmp_path) -> None:
    def interrupted(path: Path) -> None:
        with atomic.replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_disk_that_fills_at_the_last_moment_leaves_the_old_content(tmp_path, monkeypatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_bytes(path, b"new", fsync=True)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_writers_of_one_path_do_not_meet(tmp_path) -> None:
    path = tmp_path / "file"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]

    def write(content: bytes) -> None:
        for _ in range(10):
            atomic.write_bytes(path, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["file"]


def test_links_pipes_and_folders_are_not_opened_in_place(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious content")
    link, dangling, pipe = (tmp_path / name for name in ("link", "dangling", "pipe"))
    link.symlink_to(precious)
    dangling.symlink_to(tmp_path / "new")
    os.mkfifo(pipe)
    for path in (link, dangling, pipe):
        with pytest.raises(SecurityError, match="plain files"):
            atomic.open_in_place(path, os.O_WRONLY)
    assert precious.read_text() == "precious content"
    assert not (tmp_path / "new").exists()
    os.close(atomic.open_in_place(tmp_path / "file", os.O_WRONLY))
    assert (tmp_path / "file").read_bytes() == b""
