"""What breaks, and whether the answer changes: faults struck at a search, and an undisturbed one.

A fault is struck at a real cluster of Ray nodes, a real driver and a real MLflow store, with a
learner that sleeps. Afterwards the store must hold every trial and every point once, and the
table of trials must equal that of the undisturbed search, number for number.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.results import result
from tests.harness import damage, postgres, wire
from tests.harness.scene import TRIAL_COLUMNS, Cluster, Process, Scene, unused_port, wait_until
from tests.harness.stage import Absent, Stage
from tuneparts.core.errors import UnknownNameError
from tuneparts.tracking import frames, store


def run(*, quick: bool = False, only: str | None = None) -> dict[str, Any]:
    """Strike every fault once, or often where it says so; one row each.

    Args:
        quick: fewer repetitions and shorter absences.
        only: the one fault to strike.
    """
    if only is not None and only not in FAULTS:
        raise UnknownNameError("fault", only, FAULTS)
    names = list(FAULTS) if only is None else [only]
    with _stage(quick=quick) as stage:
        rows = [_told(stage, name) for name in names]
    whole = [row["lost"] == 0 and row["doubled"] == 0 and row["table equal"] for row in rows]
    staged = [ok for ok, row in zip(whole, rows, strict=True) if row["times"]]
    return result("faults", {"survived_over_struck": sum(staged) / max(1, len(staged))}, rows)


def _told(stage: Stage, name: str) -> dict[str, Any]:
    """A row, printed as it comes; one that raises is a row too, so that the others are not lost."""
    try:
        row = strike(stage, name)
    except Exception as error:
        broken = {"times": 1, "recovered in": None, "lost": None, "doubled": None}
        row = {"fault": name} | broken | {"table equal": False, "note": f"{error}"[-400:]}
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def strike(stage: Stage, name: str) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"fault": name}
    with stage.stack:
        try:
            scene, times, seconds = FAULTS[name](stage)
        except Absent as reason:
            unknown = {"times": 0, "recovered in": None, "lost": None, "doubled": None}
            return row | unknown | {"table equal": None, "note": str(reason)}
        lost, doubled, equal = audit(scene, stage.expected)
    return row | {
        "times": times,
        "recovered in": round(seconds, 1),
        "lost": lost,
        "doubled": doubled,
        "table equal": equal,
    }


def audit(
    scene: Scene, expected: tuple[pd.DataFrame, pd.DataFrame] | None
) -> tuple[int, int, bool]:
    """Trials and points lost, doubled, and whether the table is the undisturbed one."""
    if expected is None:
        raise RuntimeError("the undisturbed search comes first")
    trials, steps = table(scene)
    found = [trials[~_is_bad(trials)], steps[~_is_bad(steps)]]
    keys = (["trial"], ["trial", "metric", "step"])
    lost = doubled = 0
    for one, other, key in zip(found, expected, keys, strict=True):
        have, want = one[key].value_counts(), other[key].value_counts()
        lost += int((~want.index.isin(have.index)).sum())
        doubled += int((have > 1).sum())
    doubled += scene.duplicates() + _doubled_in_store(scene.uri)
    equal = all(
        one.reset_index(drop=True)
        .reindex(columns=other.columns)
        .equals(other.reset_index(drop=True))
        for one, other in zip(found, expected, strict=True)
    )
    return lost, doubled, equal


def table(scene: Scene) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What reports read, without what may differ: times and run ids."""
    (parent,) = frames.runs(scene.uri)["parent_run_id"]
    trials = frames.trials(scene.uri, parent)
    steps = frames.steps(scene.uri, parent)
    trials = trials.drop(columns=[name for name in TRIAL_COLUMNS if name in trials])
    return trials, steps[steps["metric"] != "cost/seconds"].drop(columns=["time"])


def _is_bad(frame: pd.DataFrame) -> "pd.Series[bool]":
    return frame["arm"].str.startswith("bad_")


def _doubled_in_store(uri: str) -> int:
    """Runs of one trial, and points of one step, that the store itself holds twice."""
    (parent,) = frames.runs(uri)["parent_run_id"]
    trials = frames.trials(uri, parent, params=False)
    steps = frames.steps(uri, parent)
    metrics = {run_id: set(steps["metric"]) for run_id in trials["run_id"]}
    points = store.points(store.client(uri), metrics)
    return len(points) - len({point[:3] for point in points})


@contextmanager
def _stage(*, quick: bool) -> Iterator[Stage]:
    cluster = Cluster()
    with tempfile.TemporaryDirectory(prefix="tuneparts-faults-") as name:
        empty = Path(name) / "empty.db"
        store.client(f"sqlite:///{empty}")
        try:
            cluster.start(nodes=2)
            stage = Stage(Path(name), cluster, empty, quick)
            undisturbed = stage.scene()
            undisturbed.finish(undisturbed.search())
            stage.expected = table(undisturbed)
            yield stage
        finally:
            cluster.kill()


def _worker(stage: Stage) -> tuple[Scene, int, float]:
    """A worker process ends without a word, in the middle of a trial."""
    mark = stage.folder / "worker"
    mark.mkdir()
    scene = stage.scene(faults=({"fault": "exit", "fault_folder": str(mark)},))
    driver = scene.search()
    wait_until((mark / "died").exists, "the death of a worker")
    rows = scene.rows()
    seconds = scene.await_rows(rows + 1, driver)
    scene.finish(driver)
    (record,) = [r for t, r in scene.journal().trials.items() if t.arm == "bad_0"]
    if record.end is None or record.end.outcome != "finished":
        raise RuntimeError("the trial whose worker died must finish")
    return scene, 1, seconds


def _node(stage: Stage) -> tuple[Scene, int, float]:
    """A node dies under a trial, and another joins."""
    scene = stage.scene(seconds=1.0)
    doomed = stage.cluster.nodes.pop()
    driver = scene.search()
    victim = _victim(scene, doomed)
    doomed.kill()
    seconds = _await_move(scene, victim)
    stage.cluster.add_node()
    scene.finish(driver)
    return scene, 1, seconds


def _network(stage: Stage) -> tuple[Scene, int, float]:
    """A node is cut off for a moment, and then until its trial runs elsewhere; then it is back."""
    reason = wire.why_not()
    if reason is not None:
        raise Absent(reason)
    line = stage.stack.enter_context(wire.Wire())
    if not line.reaches(stage.cluster.address):
        raise Absent(f"the head at {stage.cluster.address} is not reached from a namespace")
    scene = stage.scene(seconds=2.0)
    node = stage.cluster.add_node(line)
    stage.stack.callback(node.kill)
    stage.cluster.nodes.remove(node)
    driver = scene.search()
    victim = _victim(scene, node)
    line.cut()
    time.sleep(1)
    line.mend()
    wait_until(
        lambda: scene.progress()[victim.trial][0] > victim.rows, "a row after a moment of silence"
    )
    victim = replace(victim, rows=scene.progress()[victim.trial][0])
    line.cut()
    seconds = _await_move(scene, victim)
    line.mend()
    scene.finish(driver)
    return scene, 2, seconds


@dataclass(frozen=True)
class _Victim:
    """A trial on a node that something will happen to."""

    trial: str
    rows: int
    process: int


def _victim(scene: Scene, node: Process) -> _Victim:
    """Wait until the node runs a trial of random search with one or two of its four rows."""
    found: list[_Victim] = []

    def is_there() -> bool:
        pids = node.pids()
        for trial, (rows, _) in scene.progress().items():
            if trial.startswith("random/") and rows in {1, 2}:
                process = scene.process(trial)
                if process in pids:
                    found.append(_Victim(trial, rows, process))
        return bool(found)

    wait_until(is_there, "a trial on the node")
    return found[0]


def _await_move(scene: Scene, victim: _Victim) -> float:
    """Seconds until another process has written a row of it; one may have been on its way."""
    start = time.monotonic()

    def has_moved() -> bool:
        rows, is_over = scene.progress()[victim.trial]
        is_elsewhere = scene.process(victim.trial) != victim.process
        return is_elsewhere and (is_over or rows > victim.rows + 1)

    wait_until(has_moved, "rows of the trial from another node")
    return time.monotonic() - start


def _driver(stage: Stage) -> tuple[Scene, int, float]:
    """The driver is killed with -9 at random moments, each time resumed."""
    scene = stage.scene()
    rng = random.Random(0)
    times = 2 if stage.quick else 10
    total = 0.0
    driver = scene.search()
    for _ in range(times):
        scene.await_rows(scene.rows() + rng.randint(1, 4), driver)
        driver.kill()
        rows = scene.rows()
        start = time.monotonic()
        driver = scene.resume()
        scene.await_rows(rows + 1, driver)
        total += time.monotonic() - start
    scene.finish(driver)
    return scene, times, total / times


def _tracking_server(stage: Stage) -> tuple[Scene, int, float]:
    """The MLflow server is killed for a while, and again while the last points are sent."""
    database = stage.folder / "served.db"
    shutil.copy(stage.empty_store, database)
    port = unused_port()
    server = _Server(f"sqlite:///{database}", port)
    stage.stack.callback(server.kill)
    scene = stage.scene(uri=f"http://127.0.0.1:{port}")
    driver = scene.search()
    scene.await_rows(5, driver)
    server.kill()
    time.sleep(5 if stage.quick else 60)
    server.start()
    wait_until(lambda: _is_over(scene) or not driver.is_running, "the end of all trials")
    server.kill()
    start = time.monotonic()
    time.sleep(5)
    server.start()
    scene.finish(driver)
    seconds = time.monotonic() - start
    scene.sync_if_told()
    scene.uri = f"sqlite:///{database}"
    return scene, 2, seconds


def _database(stage: Stage) -> tuple[Scene, int, float]:
    """PostgreSQL is restarted under the store."""
    reason = postgres.why_not()
    if reason is not None:
        raise Absent(reason)
    server = stage.stack.enter_context(postgres.Postgres())
    store.client(server.uri)
    scene = stage.scene(uri=server.uri)
    driver = scene.search()
    scene.await_rows(5, driver)
    start = time.monotonic()
    server.restart()
    scene.await_rows(scene.rows() + 1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 1, seconds


def _checkpoint(stage: Stage) -> tuple[Scene, int, float]:
    """The newest checkpoint of a trial is cut in half while no driver runs."""
    scene = stage.scene()
    driver = scene.search()
    scene.await_rows(6, driver)
    driver.kill()
    newest = max(scene.run_folder.glob("trials/*/*/*/r*.pt"), key=lambda path: path.stat().st_mtime)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    start = time.monotonic()
    rows = scene.rows()
    driver = scene.resume()
    scene.await_rows(rows + 1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 1, seconds


def _disk(stage: Stage) -> tuple[Scene, int, float]:
    """The disk of the checkpoints fills up; the search stops, and resumes after space is made."""
    disk = stage.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Absent("a small file system is mounted by root only")
    stage.stack.callback(lambda: subprocess.run(["umount", "--lazy", str(disk)], check=False))
    scene = stage.scene(storage=disk / "trials")
    driver = scene.search()
    scene.await_rows(5, driver)
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 256):
            pass
    start = time.monotonic()
    if driver.wait() != 2 or "No space left" not in (scene.folder / "driver.log").read_text():
        raise RuntimeError("a full disk must end the search with our own error")
    ballast.unlink()
    driver = scene.resume()
    scene.await_rows(scene.rows() + 1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 1, seconds


def _trials(stage: Stage) -> tuple[Scene, int, float]:
    """Trials that raise, return NaN, run out of memory, are killed for it, or hang."""
    kinds = ("raise", "nan", "memory", "killed", "hang")
    scene = stage.scene(
        faults=tuple({"fault": kind} for kind in kinds),
        variables={"TUNEPARTS_INTERVAL_LIMIT": "10"},  # a busy machine stretches 0.3 s
    )
    scene.finish(scene.search())
    seconds = 0.0
    for trial, record in scene.journal().trials.items():
        if trial.arm.startswith("bad_"):
            if record.end is None or record.end.outcome != "failed" or record.last is None:
                raise RuntimeError(f"`{trial}` must fail, but did not")
            seconds = max(seconds, record.end.time - record.last.time)
    return scene, len(kinds), seconds


def _second_driver(stage: Stage) -> tuple[Scene, int, float]:
    """A second driver is started on the run and must be refused at once."""
    scene = stage.scene(seconds=2.0)  # long enough for it to start
    driver = scene.search()
    scene.await_rows(3, driver)
    start = time.monotonic()
    if scene.resume().wait() != 2:
        raise RuntimeError("a second driver must be refused")
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 1, seconds


def _head(stage: Stage) -> tuple[Scene, int, float]:
    """The head node dies with its driver; a new cluster continues from storage."""
    scene = stage.scene()
    driver = scene.search()
    scene.await_rows(6, driver)
    driver.kill()
    stage.cluster.kill()
    start = time.monotonic()
    stage.cluster.start(nodes=2)
    rows = scene.rows()
    driver = scene.resume()
    scene.await_rows(rows + 1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 1, seconds


FAULTS: dict[str, Callable[[Stage], tuple[Scene, int, float]]] = {
    "worker killed": _worker,
    "node killed, one added": _node,
    "node cut off": _network,
    "driver killed": _driver,
    "MLflow server killed": _tracking_server,
    "PostgreSQL restarted": _database,
    "checkpoint cut": _checkpoint,
    "disk full": _disk,
    "bad trials": _trials,
    "second driver": _second_driver,
    "head restarted": _head,
    **damage.FAULTS,
}
"""Each strikes its fault: the scene, how often, and the seconds until rows came again."""


class _Server:
    """An MLflow server over a database that can go away and come back."""

    def __init__(self, uri: str, port: int) -> None:
        self._command, self._address = store._ui_command(uri, port), f"http://127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self._process = Process(self._command, os.environ)
        wait_until(lambda: store.unreachable(self._address) is None, "the MLflow server")

    def kill(self) -> None:
        self._process.kill()


def _is_over(scene: Scene) -> bool:
    """Whether all trials have ended: of random, asha, pbt and again."""
    return scene.ends() >= 4 + 4 + 4 + 1
