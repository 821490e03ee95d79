"""Faults of disks, scores and processes, and of nodes that come and go or share no disk."""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.harness.scene import Process, Scene, wait_until
from tests.harness.stage import Absent, Stage
from tuneparts.search.state import TrialRecord

_LOSSES = 5
"""How often a node goes under one trial: more often than a trial without progress survives."""


def _small_disk(stage: Stage, folder: Path) -> None:
    """Mount a file system with room for a run and its report, which goes with the fault."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Absent("a small file system is mounted by root only")
    stage.stack.callback(lambda: subprocess.run(["umount", "--lazy", str(folder)], check=False))


def _the_bad(scene: Scene) -> TrialRecord:
    """What became of the only trial of the bad arm."""
    (record,) = [r for trial, r in scene.journal().trials.items() if trial.arm == "bad_0"]
    return record


def _journal(stage: Stage) -> tuple[Scene, int, float]:
    """The disk of the journal fills up in the middle of a line, and is full when it is opened."""
    disk = stage.folder / "journal disk"
    _small_disk(stage, disk)
    scene = stage.scene(results=disk / "results", storage=stage.folder / "journal trials")
    driver = scene.search()
    scene.await_rows(5, driver)
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)) == 1 << 20:
            pass
        while file.write(b"x" * 64):
            pass
    start = time.monotonic()
    if driver.wait() != 2:
        raise RuntimeError("a full disk must end the search with our own error")
    journal = scene.run_folder / "journal.jsonl"
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if scene.resume().wait() == 0:
        raise RuntimeError("there is no space yet")
    if not journal.read_bytes().startswith(whole):
        raise RuntimeError("whoever opens a torn journal must not touch its whole lines")
    ballast.unlink()
    driver = scene.resume()
    scene.await_rows(scene.rows() + 1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    return scene, 2, seconds


def _scores(stage: Stage) -> tuple[Scene, int, float]:
    """A trial reports NaN as its score, in a row that is otherwise in order."""
    scene = stage.scene(faults=({"fault": "score"},))
    scene.finish(scene.search())
    record = _the_bad(scene)
    if record.end is None or "a score is a finite number" not in record.end.message:
        raise RuntimeError(f"a trial without a finite score must fail, but ended as {record.end}")
    assert record.last is not None
    return scene, 1, record.end.time - record.last.time


def _context(stage: Stage) -> tuple[Scene, int, float]:
    """A trial leaves its process broken for whatever runs in it next, as errors in CUDA do."""
    scene = stage.scene(faults=({"fault": "context"},))
    scene.finish(scene.search())
    record = _the_bad(scene)
    if record.end is None or "an illegal access" not in record.end.message:
        raise RuntimeError(f"the trial must fail by its own error, but ended as {record.end}")
    assert record.last is not None
    return scene, 1, record.end.time - record.last.time


def _spot(stage: Stage) -> tuple[Scene, int, float]:
    """The node of a trial that gets on is taken away five times, and another joins each time."""
    long = {"steps": 2 * 3 * _LOSSES, "seconds": 1.0}
    node = stage.cluster.add_node(spot=True)
    scene = stage.scene(faults=(long,), is_spot=True)
    driver = scene.search()
    total = 0.0
    for _ in range(_LOSSES):
        _await_row(scene, "a row of the trial on that node")
        stage.cluster.nodes.remove(node)
        node.kill()
        node = stage.cluster.add_node(spot=True)
        start = time.monotonic()
        _await_row(scene, "a row from the new node")
        total += time.monotonic() - start
    scene.finish(driver)
    stage.cluster.nodes.remove(node)
    node.kill()
    record = _the_bad(scene)
    if record.end is None or record.end.outcome != "finished":
        raise RuntimeError(f"a trial that gets on must finish, but ended as {record.end}")
    return scene, _LOSSES, total / _LOSSES


def _await_row(scene: Scene, what: str) -> None:
    """Wait until the bad trial has one more row."""

    def count() -> int:
        return scene.progress().get("bad_0/seed0/00000", (0, False))[0]

    before = count()
    wait_until(lambda: count() > before, what)


def _storage(stage: Stage) -> tuple[Scene, int, float]:
    """A node has a disk of its own where the others share one: the search must be refused."""
    scene = stage.scene()
    scene.results.mkdir()
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        raise Absent("a node gets a file system of its own by root only")
    node: Process = stage.cluster.add_node(hidden=scene.results)
    start = time.monotonic()
    code = scene.search().wait()
    said = (scene.folder / "driver.log").read_text()
    if code != 2 or "what the driver wrote there" not in said or "`--storage`" not in said:
        raise RuntimeError(f"storage that a node does not see must be refused, but: {said[-2000:]}")
    seconds = time.monotonic() - start
    stage.cluster.nodes.remove(node)
    node.kill()
    scene.finish(scene.resume())
    return scene, 1, seconds


def _from_zero(stage: Stage) -> tuple[Scene, int, float]:
    """The cluster has no CPU at all when the search begins: its autoscaler has to be asked."""
    stage.cluster.kill()
    stage.cluster.start_empty(most=2)
    scene = stage.scene()
    start = time.monotonic()
    driver = scene.search()
    scene.await_rows(1, driver)
    seconds = time.monotonic() - start
    scene.finish(driver)
    if "waiting" not in (scene.folder / "driver.log").read_text():
        raise RuntimeError("the search must have waited for nodes")
    stage.cluster.kill()
    stage.cluster.start(nodes=2)
    return scene, 1, seconds


FAULTS: dict[str, Callable[[Stage], tuple[Scene, int, float]]] = {
    "journal disk full": _journal,
    "NaN scores": _scores,
    "broken context": _context,
    "node lost five times": _spot,
    "storage not shared": _storage,
    "autoscaler from zero": _from_zero,
}
"""Each strikes its fault: the scene, how often, and the seconds until rows came again."""
