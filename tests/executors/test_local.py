"""The local executor, in this process and in a pool: same journal, whatever dies on the way."""

import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tuneparts.core.errors import BusyError, ConfigError, PlacementError, StorageError, WorkerError
from tuneparts.executors import Place, _local, execute, lock
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.arm import Resources
from tuneparts.search.events import Event, Row, TrialId, read
from tuneparts.search.journal import records
from tuneparts.search.spec import Search


@pytest.fixture
def everything(null_search, null_arm) -> Search:
    """An arm of each kind, one that fails, and followers."""
    return null_search(
        null_arm("fixed"),
        null_arm("broken", config={"fault": "raise"}),
        null_arm("random", algorithm=RandomSearch(num_trials=4)),
        null_arm("tpe", algorithm=Tpe(num_trials=4, window=2, num_startup=2)),
        null_arm("asha", algorithm=Asha(num_trials=9, min_steps=2, reduction=2)),
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
        null_arm("again", hypers_from="random"),
    )


def here(search: Search, folder: Path, **options: Any) -> dict[str, Any]:
    """Run in this process."""
    assert execute(search, folder=folder, place=Place("local", workers=1), **options) == "done"
    return facts(folder)


def facts(folder: Path) -> dict[str, Any]:
    """All that could reach a table, without times."""
    return {
        str(trial): (
            list(record.configs),
            {
                step: {k: v for k, v in row.metrics.items() if k != "cost/seconds"}
                for step, row in sorted(record.rows.items())
            },
            record.end and (record.end.outcome, record.end.message),
        )
        for trial, record in sorted(records(folder / "journal.jsonl").items())
    }


def test_a_pool_gives_the_journal_of_this_process(everything, tmp_path) -> None:
    found = here(everything, tmp_path / "one")
    ending = execute(everything, folder=tmp_path / "two", place=Place("local", workers=2))
    assert ending == "done"
    assert facts(tmp_path / "two") == found
    outcomes = {trial: end[0] for trial, (_, _, end) in found.items()}
    assert outcomes.pop("broken/seed0/00000") == "failed"
    assert set(outcomes.values()) == {"finished", "stopped"}


def test_real_learners_give_the_same_numbers_in_a_pool(tmp_path) -> None:
    from tuneparts.search import load

    search = load.load("rotated_digits", scale="smoke", arms=["none", "partitioned"], seeds=[0, 1])
    found = here(search, tmp_path / "one")
    execute(search, folder=tmp_path / "two", place=Place("local", workers=2))
    assert facts(tmp_path / "two") == found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_starts_when_a_worker_takes_it_up(
    null_search, null_arm, tmp_path, workers: int
) -> None:
    """Three trials of 0.2 s in the queue at once do not all start at second 0."""
    arm = null_arm("random", config={"seconds": 0.05}, algorithm=RandomSearch(num_trials=3))
    execute(null_search(arm), folder=tmp_path, place=Place("local", workers=workers))
    found = sorted(records(tmp_path / "journal.jsonl").items())
    queued = [record.queued for _, record in found]
    assert max(queued) - min(queued) < 0.05
    for _, record in found:
        assert record.running is not None
        assert 0.2 <= record.end.time - record.start < 0.4 * workers
    last = found[-1][1]
    assert last.start >= min(record.end.time for _, record in found)


def test_the_number_of_threads_is_given_back(null_search, null_arm, tmp_path) -> None:
    before = torch.get_num_threads()
    here(null_search(null_arm("wide", resources=Resources(cpus=2))), tmp_path)
    assert torch.get_num_threads() == before


def dying(null_search, null_arm, fault: str, marks: Path) -> Search:
    config = {"fault": fault, "fault_folder": str(marks)}
    return null_search(null_arm("bad", config=config), null_arm("good"))


def test_a_worker_that_dies_is_started_again_where_it_was(null_search, null_arm, tmp_path) -> None:
    mortal = dying(null_search, null_arm, "exit", tmp_path)
    execute(mortal, folder=tmp_path / "run", place=Place("local", workers=2))
    assert (tmp_path / "died").exists()
    bad, good = facts(tmp_path / "run").values()
    assert bad[1:] == good[1:]
    lines = (tmp_path / "run/trials/bad/seed0/00000/log/log.txt").read_text().splitlines()
    assert [("from 2 to 8" in line) for line in lines] == [False, True]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("killed", "the worker process died 4 times"),
        ("hang", "an interval ends within 2 s"),
        ("memory", "MemoryError"),
    ],
)
def test_a_trial_that_cannot_go_on_fails_alone(
    null_search, null_arm, tmp_path, monkeypatch, fault: str, message: str
) -> None:
    monkeypatch.setenv("TUNEPARTS_INTERVAL_LIMIT", "2")
    search = dying(null_search, null_arm, fault, tmp_path)
    execute(search, folder=tmp_path / "run", place=Place("local", workers=2))
    bad, good = facts(tmp_path / "run").values()
    assert bad[2][0] == "failed"
    assert message in bad[2][1]
    assert list(bad[1]) == [2]
    assert good[2][0] == "finished"


def test_a_worker_whose_process_is_broken_takes_no_other_trial(
    null_search, null_arm, tmp_path
) -> None:
    from tuneparts.search.space import Choice

    search = null_search(
        null_arm("bad", config={"fault": "context"}),
        null_arm(
            "random", algorithm=RandomSearch(num_trials=8), space={"x": Choice(options=(0.5, 1.0))}
        ),
    )
    execute(search, folder=tmp_path, place=Place("local", workers=2))
    outcomes = {trial: end[0] for trial, (_, _, end) in facts(tmp_path).items()}
    assert outcomes.pop("bad/seed0/00000") == "failed"
    assert set(outcomes.values()) == {"finished"}


def test_a_trial_that_dies_after_every_interval_finishes(null_search, null_arm, tmp_path) -> None:
    config = {"fault": "often", "fault_folder": str(tmp_path)}
    search = null_search(null_arm("bad", config=config), null_arm("good"), max_failures=1)
    execute(search, folder=tmp_path / "run", place=Place("local", workers=2))
    assert sorted(path.name for path in tmp_path.glob("died*")) == ["died2", "died4", "died6"]
    bad, good = facts(tmp_path / "run").values()
    assert bad[1:] == good[1:]


class Interrupt:
    """Presses Ctrl-C once there are a few rows."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_event(self, event: Event) -> None:
        self.left -= isinstance(event, Row)
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_everything(everything, tmp_path, workers: int) -> None:
    run: dict[str, Any] = {"folder": tmp_path / "run", "place": Place("local", workers=workers)}
    for after in (3, 20):
        assert execute(everything, **run, observers=[Interrupt(after)]) == "interrupted"
    assert execute(everything, **run) == "done"
    assert facts(tmp_path / "run") == here(everything, tmp_path / "undisturbed")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
SCRIPT = """
import sys
from pathlib import Path
from tuneparts.executors import Place, execute
from tuneparts.search.spec import Search
if __name__ == "__main__":
    search = Search.model_validate_json(Path(sys.argv[1]).read_text())
    execute(search, folder=Path(sys.argv[2]), place=Place("local", workers=int(sys.argv[3])))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    def start(search: Search, folder: Path, workers: int) -> subprocess.Popen[bytes]:
        (tmp_path / "driver.py").write_text(SCRIPT)
        (tmp_path / "search.json").write_text(search.model_dump_json())
        words = [tmp_path / "driver.py", tmp_path / "search.json", folder, str(workers)]
        return subprocess.Popen([sys.executable, *words], env=ENVIRONMENT)

    return start


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_driver_that_is_killed_resumes_to_the_same_table(
    everything, driver, tmp_path, workers: int
) -> None:
    slow = tuple(arm.replaced({"config.seconds": 0.02}) for arm in everything.arms)
    search, folder = everything.model_copy(update={"arms": slow}), tmp_path / "run"
    process = driver(search, folder, workers)
    journal, deadline = folder / "journal.jsonl", time.monotonic() + 180
    while not journal.exists() or journal.read_text().count('"row"') < 12:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(facts(folder)) > 0
    execute(search, folder=folder, place=Place("local", workers=workers))
    assert facts(folder) == here(search, tmp_path / "undisturbed")


def test_workers_die_with_their_driver(null_search, null_arm, driver, tmp_path) -> None:
    arms = [null_arm(name, config={"seconds": 60.0}) for name in ("a", "b")]
    process = driver(null_search(*arms), tmp_path / "run", 2)
    logs = [tmp_path / f"run/trials/{name}/seed0/00000/log/log.txt" for name in ("a", "b")]
    deadline = time.monotonic() + 180
    while not all(log.exists() for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pids = [int(log.read_text().split("process ")[1].split(",")[0]) for log in logs]
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_a_script_without_a_main_guard_is_not_run_again_by_workers(everything, tmp_path) -> None:
    script = SCRIPT.replace('if __name__ == "__main__":', "if True:")
    (tmp_path / "driver.py").write_text(f"print('the script runs')\n{script}")
    (tmp_path / "search.json").write_text(everything.model_dump_json())
    words = [tmp_path / "driver.py", tmp_path / "search.json", tmp_path / "run", "2"]
    command = [sys.executable, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script runs") == 1
    assert facts(tmp_path / "run") == here(everything, tmp_path / "undisturbed")


def test_storage_that_comes_back_harms_nobody(null_search, null_arm, tmp_path, monkeypatch) -> None:
    from tuneparts.search.storage import Folder

    failures = iter([True, True, False])
    write = Folder.write

    def unreliable(self: Folder, name: str, content: bytes) -> None:
        if name.endswith(".pt") and next(failures, False):
            raise OSError("the store is away")
        write(self, name, content)

    monkeypatch.setattr("tuneparts.executors._driver._PAUSE", 0.0)
    monkeypatch.setattr(Folder, "write", unreliable)
    search = null_search(null_arm("fixed"))
    found = here(search, tmp_path / "run")
    assert found == here(search, tmp_path / "undisturbed")


def test_storage_that_stays_away_fails_the_trial(
    null_search, null_arm, tmp_path, monkeypatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr("tuneparts.executors._driver._PAUSE", 0.0)
    monkeypatch.setattr("tuneparts.search.checkpoints.CheckpointStore.put", away)
    ((_, rows, end),) = here(null_search(null_arm("fixed")), tmp_path).values()
    assert (rows, end[0]) == ({}, "failed")
    assert "the storage failed 4 times: OSError: the store is away" in end[1]


def test_a_full_disk_stops_the_search_and_blames_no_trial(
    null_search, null_arm, tmp_path, monkeypatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    search = null_search(null_arm("fixed"))
    with monkeypatch.context() as patch:
        patch.setattr("tuneparts.search.checkpoints.CheckpointStore.put", full)
        with pytest.raises(StorageError, match=r"No space left.*tuneparts resume"):
            here(search, tmp_path / "run")
    assert here(search, tmp_path / "run") == here(search, tmp_path / "undisturbed")


def test_a_second_driver_is_refused(null_search, null_arm, tmp_path) -> None:
    search, caught = null_search(null_arm("fixed")), []

    def second() -> None:
        try:
            here(search, tmp_path)
        except BusyError as error:
            caught.append(str(error))

    with lock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        here(search, tmp_path)  # whoever holds the lock may go on
    assert f"process {os.getpid()} on {platform.node()} is running" in caught[0]
    with lock(tmp_path):
        pass


def test_the_machine_is_filled_but_not_beyond(null_search, null_arm, monkeypatch) -> None:
    monkeypatch.setattr(_local, "usable_cpus", lambda: 7)
    small, wide = null_arm("small"), null_arm("wide", resources=Resources(cpus=2))
    assert _local.room_for(null_search(small)) == 7
    assert _local.room_for(null_search(small, wide)) == 3
    with pytest.raises(PlacementError, match="needs tpu 1"):
        _local.room_for(null_search(null_arm("odd", resources=Resources(custom={"tpu": 1}))))


def test_it_never_imports_ray() -> None:
    code = (
        "import sys, tuneparts.executors._local, tuneparts.executors.worker\n"
        "import tuneparts.search.plan\n"
        "assert not {'ray', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)


def test_trials_reach_observers_in_the_order_of_the_journal(everything, tmp_path) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.events: list[Event] = []

        def on_event(self, event: Event) -> None:
            self.events.append(event)

    recorder = Recorder()
    here(everything, tmp_path, observers=[recorder])
    assert recorder.events == list(read(tmp_path / "journal.jsonl"))
    assert TrialId("again", 0, 0) in {event.trial for event in recorder.events}


def test_a_worker_starts_no_search(null_search, null_arm, tmp_path, monkeypatch) -> None:
    """As a script would that holds the objective of its search, and no guard."""
    monkeypatch.setenv("TUNEPARTS_IN_WORKER", "1")
    with pytest.raises(ConfigError, match="__main__"):
        execute(null_search(null_arm("fixed")), folder=tmp_path)


def test_workers_that_never_start_end_the_search_with_a_sentence(
    null_search, null_arm, tmp_path, monkeypatch
) -> None:
    class Dead:
        is_ready = False

        def __init__(self, _: Any) -> None:
            self.connection, theirs = multiprocessing.Pipe()
            theirs.close()

        def end(self) -> int:
            self.connection.close()
            return 3

    monkeypatch.setattr(_local, "_Worker", Dead)
    with pytest.raises(WorkerError, match="6 times in a row: the process ended with code 3"):
        execute(null_search(null_arm("fixed")), folder=tmp_path, place=Place("local", workers=2))
