import errno
import os
import threading
from pathlib import Path

import pytest

from tuneparts.core import atomic
from tuneparts.core.errors import SecurityError


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


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/file"])
@pytest.mark.parametrize("target", ["precious", "precious/file", "missing"])
def test_a_link_at_any_depth_leads_out_unless_it_stays(
    tmp_path: Path, link: str, target: str
) -> None:
    run, path = tmp_path / "run", tmp_path / "run" / link
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / target)
    for inner in (path, path / "below"):
        with pytest.raises(SecurityError, match="leads out of"):
            atomic.inside(run, inner)
    path.unlink()
    path.symlink_to(run)
    for inner in (path, run / "plain", run):
        assert atomic.inside(run, inner) == inner
    for outer in (run / ".." / "precious", tmp_path / "running", Path("/etc")):
        with pytest.raises(SecurityError):
            atomic.inside(run, outer)
