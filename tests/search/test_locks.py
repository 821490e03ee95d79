"""The lock of a run, with `flock` and on file systems that refuse it."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuneparts.errors import BusyError, SecurityError
from tuneparts.journal import Journal
from tuneparts.search import locks
from tuneparts.search.locks import lock


@pytest.fixture(params=["flock", "no flock"])
def kind(request, monkeypatch) -> str:
    if request.param == "no flock":
        monkeypatch.setattr(fcntl, "flock", refused)
    return str(request.param)


def refused(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


HOLD = """
import errno, fcntl, sys, time
from pathlib import Path
from tuneparts.search.locks import lock
if sys.argv[2] == "no flock":
    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")
    fcntl.flock = refused
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_the_holder_is_killed(kind, tmp_path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            sentence = rf"process {holder.pid} on \S+ is running .* since .* UTC\. Wait for it"
            with pytest.raises(BusyError, match=sentence), lock(tmp_path):
                pass
        finally:
            holder.kill()
    with lock(tmp_path):
        pass


def elsewhere(name: str) -> list[str]:
    """The start of a command that runs as on another machine: own name, own process numbers."""
    apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("only who may make namespaces has two machines in one")
    return [*apart, "sh", "-c", f'hostname {name} && exec "$@"', "sh"]


def test_two_machines_with_one_folder_take_turns(kind, monkeypatch, tmp_path) -> None:
    command = [*elsewhere("alpha"), sys.executable, "-c", HOLD, str(tmp_path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(BusyError, match=r"on alpha is running"), lock(tmp_path):
                pass
        finally:
            holder.kill()
            holder.communicate()  # until its child is dead too
    # Without `flock` nothing tells of the death of another machine but its silence.
    monkeypatch.setattr(locks, "STALE", 0.0)
    with lock(tmp_path):
        pass


def test_it_can_be_entered_again_and_is_free_afterwards(kind, tmp_path) -> None:
    for _ in range(2):
        with lock(tmp_path), lock(tmp_path):
            pass
    assert not (tmp_path / "lock.holder").exists()


def foreign(folder: Path, age: float) -> Path:
    path = folder / "lock.holder"
    path.write_text(json.dumps({"pid": 1, "host": "elsewhere", "time": "then"}))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_holder_elsewhere_is_believed_while_its_heart_beats(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(fcntl, "flock", refused)
    foreign(tmp_path, age=locks.STALE / 2)
    with pytest.raises(BusyError, match="process 1 on elsewhere"), lock(tmp_path):
        pass
    foreign(tmp_path, age=2 * locks.STALE)
    with lock(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_holder_shows_that_it_lives(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    with lock(tmp_path):
        os.utime(tmp_path / "lock.holder", (1.0, 1.0))
        deadline = time.monotonic() + 30
        while (tmp_path / "lock.holder").stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "lock.holder").stat().st_mtime > 2


def test_a_lock_that_was_taken_over_is_not_taken_away(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(fcntl, "flock", refused)
    with lock(tmp_path):
        path = foreign(tmp_path, age=0)
    assert path.exists()


def test_other_errors_of_the_file_system_are_told(monkeypatch, tmp_path) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="broken"), lock(tmp_path):
        pass


@pytest.mark.parametrize("name", ["lock", "journal.jsonl"])
def test_links_out_of_a_run_s_folder_are_not_followed(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious content without an end of line")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(precious)
    with pytest.raises(SecurityError, match="link"), locks.lock(folder):
        Journal(folder / name)
    assert precious.read_text() == "precious content without an end of line"
