"""A small world to break: Ray nodes, an MLflow server and drivers, each a process of its own.

Everything listens on this machine, has ports and folders of its own, and is ended by the process
id under which it was started.
"""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.harness.wire import Wire
from tuneparts.executors import logs
from tuneparts.search import runs
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, read
from tuneparts.search.journal import Journal
from tuneparts.search.storage import Folder

ROOT = Path(__file__).parents[2]
"""Drivers and workers import `tests.harness.faulty` from here."""
PATIENCE = 900.0
"""Seconds after which something that should happen is taken not to happen."""
TRIAL_COLUMNS = ["run_id", "cost/seconds", "param.seconds", "start", "end"]
"""What may differ between two runs of one search, besides the times of steps."""
_COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)
_GROWS = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
"""What Ray's provider of nodes on this machine asks for."""

SEARCH = '''"""Does the search survive?"""

from tests.harness.faulty import FaultyConfig
from tuneparts.data.config import Data
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Search
from tuneparts.search.arm import Arm
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Resources
from tuneparts.search.spec import Scale

FAULTS = {faults!r}


def search(scale: Scale) -> Search:
    space = {{"x": Uniform(low=0.0, high=1.0)}}
    null = FaultyConfig(steps=8, interval=2, seconds={seconds})
    asha = Asha(num_trials=4, min_steps=2, reduction=2)
    where = Resources(custom={spot!r})
    note = "may be longer"
    bad = tuple(
        Arm(name=f"bad_{{number}}", config=null.replaced(fault), resources=where, budget_note=note)
        for number, fault in enumerate(FAULTS)
    )
    return Search(
        name="null",
        question="Does the search survive?",
        scale=scale,
        data=Data(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/accuracy",
        steps=8,
        seeds=(0,),
        arms=(
            *bad,
            Arm(name="random", config=null, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="asha", config=null, algorithm=asha, space=space),
            Arm(name="pbt", config=null, algorithm=Pbt(population=4, num_rounds=2), space=space),
            Arm(name="again", config=null.replaced({"hypers_from": "random"})),
        ),
    )
'''


class Process:
    """A child in a group of its own."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        with open(os.devnull if log is None else log, "ab") as output:
            self.child = subprocess.Popen(
                command,
                env=dict(environment),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def is_running(self) -> bool:
        return self.child.poll() is None

    def pids(self) -> list[int]:
        """Its process id and those of all that it started, whatever group they are in."""
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # ended meanwhile
                parent = stat.read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(stat.parent.name))
        found = [self.child.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def kill(self) -> None:
        """End it and all that it started, at once."""
        if self.is_running:
            for pid in self.pids():  # Ray's workers have groups of their own
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.child.wait()

    def wait(self) -> int:
        return self.child.wait(PATIENCE)


class Cluster:
    """Ray nodes on this machine that ask for a token of their own."""

    def __init__(self) -> None:
        # Ray keeps sockets in its folder, and the path of a socket has at most 107 characters.
        self._folder = tempfile.TemporaryDirectory(prefix="tp", ignore_cleanup_errors=True)
        self.token = Path(self._folder.name) / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.nodes: list[Process] = []
        self.address = self.jobs_address = ""

    def start(self, *, nodes: int, jobs_port: int | None = None) -> None:
        """A head and further nodes, one CPU each; the head takes jobs where a port is given."""
        from ray._private.services import get_node_ip_address

        port = unused_port()
        self.address = f"{get_node_ip_address()}:{port}"
        words = ["--include-dashboard", "false"]
        if jobs_port is not None:
            words = ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs_port)]
            self.jobs_address = f"http://127.0.0.1:{jobs_port}"
        self._start_node("--head", "--port", str(port), *words)
        for _ in range(nodes - 1):
            self.add_node()

    def start_empty(self, *, most: int) -> None:
        """A head without CPUs whose autoscaler adds nodes with one CPU each, up to so many.

        Ray's own autoscaler drives a provider that starts nodes on this machine. It looks for the
        head at port 6379 unless it is told otherwise, and then waits for ever.
        """
        from ray._private.services import get_node_ip_address

        port = unused_port()
        self.address = f"{get_node_ip_address()}:{port}"
        types = {
            "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": most},
        }
        described = {
            "cluster_name": "grows",
            "max_workers": most,
            "head_node_type": "head",
            "idle_timeout_minutes": 60,
            "upscaling_speed": 1.0,
            "file_mounts_sync_continuously": False,
            "provider": {"type": "fake_multinode", "gcs_address": self.address},
            "auth": {},
            "available_node_types": types,
            # Its monitor ends without them, and the head with it.
            **{name: {} for name in ("docker", "file_mounts")},
            **{name: [] for name in _COMMANDS},
        }
        path = Path(self._folder.name) / "autoscaling.json"  # JSON is YAML
        path.write_text(json.dumps(described))
        words = ["--include-dashboard", "false", "--autoscaling-config", str(path)]
        self._start_node("--head", "--port", str(port), *words, cpus=0, variables=_GROWS)

    def add_node(
        self, wire: Wire | None = None, *, spot: bool = False, hidden: Path | None = None
    ) -> Process:
        """Start one more node with one CPU.

        Args:
            wire: it is at the far end of this.
            spot: it offers the resource of that name.
            hidden: a folder that it does not see; it has another in its place.
        """
        words = [] if wire is None else ["--node-ip-address", wire.address]
        words += ["--resources", '{"spot": 1}'] if spot else []
        return self._start_node("--address", self.address, *words, wire=wire, hidden=hidden)

    def kill(self) -> None:
        """All nodes at once."""
        for node in self.nodes:
            node.kill()
        self.nodes.clear()

    def _start_node(
        self,
        *words: str,
        wire: Wire | None = None,
        hidden: Path | None = None,
        cpus: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        folder = Path(self._folder.name) / str(len(os.listdir(self._folder.name)))
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        command += ["--num-cpus", str(cpus), "--disable-usage-stats", *words]
        command += ["--temp-dir", str(folder)] if "--head" in words else []
        environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": python_path(),
            # As in an activated environment: jobs call `python`.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            **(variables or {}),
        }
        environment.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)
        folder.mkdir(exist_ok=True)
        log = folder / "node.log"
        command = command if wire is None else wire.inside(command)
        if hidden is not None:
            cover = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", cover, str(hidden), *command]
        node = Process(command, environment, log)
        self.nodes.append(node)
        wait_until(lambda: "Ray runtime started" in log.read_text(), "a node of the cluster")
        return node


class Scene:
    """One search in a folder of its own, its drivers and its store."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        *,
        uri: str,
        faults: tuple[Mapping[str, Any], ...] = (),
        seconds: float = 0.3,
        storage: Path | None = None,
        results: Path | None = None,
        is_spot: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.cluster, self.uri = folder, cluster, uri
        self.results = results or folder / "results"
        self._storage = storage
        self._variables = dict(variables or {})
        self._drivers: list[Process] = []
        self._file = folder / "null.py"
        spot = {"spot": 1.0} if is_spot else {}  # bad trials run on nodes that say so
        self._file.write_text(SEARCH.format(faults=list(faults), seconds=seconds, spot=spot))

    def search(self) -> Process:
        """A driver that starts the search."""
        words = [] if self._storage is None else ["--storage", str(self._storage)]
        return self._driver("search", str(self._file), "--scale", "smoke", *words)

    def resume(self) -> Process:
        """A driver that continues it, named, since a run that never ran has to be."""
        return self._driver("resume", f"null/{self.run_folder.name}")

    def sync_if_told(self) -> None:
        """Do as a user who reads that the store was away for too long."""
        if "tuneparts sync null/" in (self.folder / "driver.log").read_text():
            self.finish(self._process("sync", f"null/{self.run_folder.name}"))

    def _driver(self, *words: str) -> Process:
        return self._process(*words, "--address", self.cluster.address)

    def _process(self, *words: str) -> Process:
        environment = {
            **os.environ,
            "PYTHONPATH": python_path(),
            "TUNEPARTS_RESULTS": str(self.results),
            "TUNEPARTS_TRACKING_URI": self.uri,
            "TUNEPARTS_RAY_TOKEN_FILE": str(self.cluster.token),
            **self._variables,
        }
        command = [sys.executable, "-m", "tuneparts.cli.main", *words]
        driver = Process(command, environment, self.folder / "driver.log")
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        """End drivers that a failed fault left behind."""
        for driver in self._drivers:
            driver.kill()

    @property
    def run_folder(self) -> Path:
        """The folder of the only run."""
        (run,) = self.results.glob("null/*")
        return run

    def rows(self) -> int:
        """Rows in the journal so far."""
        return sum(path.read_text().count('"row"') for path in self._journals())

    def ends(self) -> int:
        """Trials that have ended so far."""
        return sum(path.read_text().count('"kind": "end"') for path in self._journals())

    def _journals(self) -> list[Path]:
        return list(self.results.glob("null/*/journal.jsonl"))

    def progress(self) -> dict[str, tuple[int, bool]]:
        """Rows so far of every trial that has any, and whether it has ended."""
        found: dict[str, tuple[int, bool]] = {}
        for path in self._journals():
            for event in read(path):
                rows, is_over = found.get(str(event.trial), (0, False))
                if isinstance(event, Row):
                    found[str(event.trial)] = rows + 1, is_over
                elif isinstance(event, TrialEnded):
                    found[str(event.trial)] = rows, True
        return found

    def process(self, trial: str) -> int | None:
        """The process that ran a trial last, as the trial's log says; none before it began."""
        storage = Folder(runs.Run(self.results, f"null/{self.run_folder.name}").storage)
        lines = "\n".join(logs.read(storage, TrialId.parse(trial)))
        found: list[str] = re.findall(r", process (\d+),", lines)
        return int(found[-1]) if found else None

    def await_rows(self, count: int, driver: Process) -> float:
        """Wait for so many rows; seconds that it took."""
        start = time.monotonic()
        wait_until(
            lambda: self.rows() >= count or not driver.is_running, f"{count} rows in the journal"
        )
        if self.rows() < count:
            said = (self.folder / "driver.log").read_text()
            raise RuntimeError(f"the driver ended early: {said[-2000:]}")
        return time.monotonic() - start

    def finish(self, driver: Process) -> None:
        """Wait for an end without failure."""
        code = driver.wait()
        if code != 0:
            said = (self.folder / "driver.log").read_text()
            raise RuntimeError(f"a driver ended with {code}: {said[-2000:]}")

    def journal(self) -> Journal:
        """The journal of the only run."""
        journal = Journal(self.run_folder / "journal.jsonl")
        journal.close()
        return journal

    def duplicates(self) -> int:
        """Events that stand twice in the journal: the same row or end of a trial."""
        keys = [
            (str(event.trial), type(event).__name__, getattr(event, "step", _steps(event)))
            for event in read(self.run_folder / "journal.jsonl")
            if type(event).__name__ != "TrialStarted"
        ]
        return len(keys) - len(set(keys))


def _steps(event: Event) -> int | None:
    """Where in its trial an event happened that is no row; a rung may tell several results."""
    return getattr(event, "steps", None)


def python_path() -> str:
    """The import path of this process's children, with the checkout first."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])


def unused_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look every so often; gives up after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {PATIENCE:g} s.")
        time.sleep(0.05)
