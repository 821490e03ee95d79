"""The lock of a run, with `flock` and on file systems that refuse it."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tuneparts.core.errors import BusyError, SecurityError
from tuneparts.search.journal import Journal
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


def test_two_machines_with_one_folder_take_turns(kind, tmp_path) -> None:
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
    if kind == "no flock":  # nothing tells of the death of a process on another machine
        with pytest.raises(BusyError, match=r"is dead, delete .*lock\.holder\."), lock(tmp_path):
            pass
        (tmp_path / "lock.holder").unlink()
    with lock(tmp_path):
        pass


def test_it_can_be_entered_again_and_is_free_afterwards(kind, tmp_path) -> None:
    for _ in range(2):
        with lock(tmp_path), lock(tmp_path), ThreadPoolExecutor(1) as thread:
            found = thread.submit(lock(tmp_path).__enter__).exception()
        assert f"process {os.getpid()} on" in str(found)
    assert not (tmp_path / "lock.holder").exists()


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
    with pytest.raises(SecurityError, match="link"), lock(folder):
        Journal(folder / name)
    assert precious.read_text() == "precious content without an end of line"
