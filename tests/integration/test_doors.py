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

SEARCH = """
import os
import subprocess
import sys
from pathlib import Path

{first}
from tuneparts.executors import Place, execute
from tuneparts.executors.ray import private
from tuneparts.search import load

search = load.load(sys.argv[1], scale="smoke")
search = search.model_copy(update={{"arms": search.arms[:1]}})
wide, modes, folders, others, strangers = set(), set(), set(), set(), []


class Watch:
    def on_event(self, event):
        import ray

        wide.update(private.wide_doors())
        if ray.is_initialized():
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            folders.add(token.parent)
            modes.update(oct(path.stat().st_mode & 0o777) for path in (token, token.parent))
            session = Path(ray._private.worker._global_node.get_session_dir_path())
            others.update({{session.is_relative_to(token.parent)}})
            if os.geteuid() == 0 and not strangers:
                address = ray.get_runtime_context().gcs_address
                strangers.append(
                    subprocess.run(
                        [sys.executable, "-c", sys.argv[3], address, token.parent, session],
                        env={{k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}},
                        capture_output=True, text=True, timeout=120,
                    ).stdout
                )


before = dict(os.environ)
execute(search, folder=Path(sys.argv[2]), place=Place("ray"), observers=[Watch()])
changed = {{name for name in before if before[name] != os.environ.get(name)}}
print("wide", sorted(wide))
print("modes", sorted(modes))
print("left", [folder for folder in folders if folder.exists()])
print("inside", others, "changed", changed)
print("\\n".join(strangers))
"""

NOBODY = """
import os, sys
import ray
from ray._raylet import GcsClient

address, folder, session = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.environ["HOME"] = "/nonexistent"


def says(what, attempt):
    try:
        print(what, "got", attempt(), flush=True)
    except BaseException as error:
        print(what, "refused:", type(error).__name__, flush=True)


says("folder", lambda: os.listdir(folder))
says("token", lambda: open(folder + "/token").read())
says("session", lambda: os.listdir(session))
for mode in ("token", "disabled"):
    os.environ["RAY_AUTH_MODE"] = mode
    os.environ["RAY_AUTH_TOKEN"] = "b" * 64
    says("store", lambda: GcsClient(address=address).internal_kv_keys(b"", None, timeout=5))
says("driver", lambda: ray.init(address=address, log_to_driver=False))
"""

CONNECT = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
print("nodes", len(ray.nodes()))
"""


@pytest.mark.parametrize("first", ["", "import ray"])
def test_a_local_ray_is_private_whoever_imports_ray_first(
    first: str, null_file: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEARCH.format(first=first), null_file, tmp_path / "run", NOBODY],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        # A cluster that is gone, and a switch that would open all doors.
        env={
            **os.environ,
            "RAY_ADDRESS": "127.0.0.1:1",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert "wide []\nmodes ['0o600', '0o700']\nleft []\n" in done.stdout
    assert "inside {True} changed set()" in done.stdout
    if os.geteuid() == 0:  # another user of this machine, who knows where everything is
        tried = [
            line.split(" ")[:2] for line in done.stdout.partition("changed set()\n")[2].split("\n")
        ]
        doors = ["folder", "token", "session", "store", "store", "driver"]
        assert [words for words in tried if words != [""]] == [[door, "refused:"] for door in doors]


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
