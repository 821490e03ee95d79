"""Which doors stand open while a search runs, and who gets through Ray's."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]

LISTEN = "0A"
LOCAL = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}

SEARCH = """
import sys
from pathlib import Path

from tuneparts.executors import execute
from tuneparts.search import load

sys.path.insert(0, sys.argv[3])
from test_doors import open_doors

search = load.load(sys.argv[1], scale="smoke")
search = search.model_copy(update={"arms": search.arms[:1]})
wide = set()


class Watch:
    def on_event(self, event):
        wide.update(open_doors())


execute(search, folder=Path(sys.argv[2]), observers=[Watch()])
print("wide", sorted(wide))
"""

CONNECT = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
print("nodes", len(ray.nodes()))
"""


def family() -> set[int]:
    """This process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    members = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def open_doors() -> set[str]:
    """Addresses of this process's family that listen to more than this machine, in hex."""
    sockets = set()
    for pid in family():
        try:
            for link in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(link)
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1], fields[3], fields[9]
            if state == LISTEN and inode in sockets and address.partition(":")[0] not in LOCAL:
                found.add(address)
    return found


def test_a_local_search_listens_on_loopback_only(null_file, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, null_file, tmp_path / "run", Path(__file__).parent],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "wide []" in done.stdout


def environment(token_file: Path | None, tmp_path: Path) -> dict[str, str]:
    """Ray with this token and no other; the home folder may hold one."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TUNEPARTS_"))}
    # The switch that keeps Ray on loopback, as for a local search.
    bare |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "HOME": str(tmp_path)}
    if token_file is not None:
        bare |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
    else:
        bare |= {"RAY_AUTH_MODE": "disabled"}
    return bare


def is_up(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def token(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Ray keeps sockets in its folder, and the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield folder


def test_no_wrong_and_right_token(tmp_path, short_folder, unused_tcp_port) -> None:
    right = token(tmp_path / "right", "a" * 64)
    wrong = token(tmp_path / "wrong", "b" * 64)
    address = f"127.0.0.1:{unused_tcp_port}"
    head = subprocess.Popen(
        [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
            "--node-ip-address", "127.0.0.1", "--port", str(unused_tcp_port), "--num-cpus", "1",
            "--include-dashboard", "false", "--temp-dir", short_folder,
        ],
        env=environment(right, tmp_path),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def connect(token_file: Path | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CONNECT, address],
            env=environment(token_file, tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    try:
        deadline = time.monotonic() + 120
        while not is_up(unused_tcp_port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        accepted = connect(right)
        assert "nodes 1" in accepted.stdout, accepted.stderr
        for refused in (connect(wrong), connect(None)):
            assert refused.returncode != 0
            assert "nodes" not in refused.stdout
    finally:
        head.terminate()
        head.wait(60)
