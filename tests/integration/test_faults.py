"""The driver is killed or interrupted and resumed: no trial lost, none doubled, same table."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tuneparts.search import runs
from tuneparts.tracking import frames

# Minutes each. Killing and resuming without Ray is in tests/executors/test_local.py.
pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]


COMMAND = """
import signal
from tuneparts.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""The command line; it hears Ctrl-C also when the tests run in the background of a shell."""


class Driver:
    """The command line in a folder of its own."""

    def __init__(self, folder: Path, store: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.results = folder / "results"
        self.results.mkdir()
        self.uri = f"sqlite:///{self.results / 'mlflow.db'}"
        (self.results / "mlflow.db").write_bytes(store.read_bytes())
        self.environment = {
            **os.environ,
            "TUNEPARTS_RESULTS": str(self.results),
            "TUNEPARTS_TRACKING_URI": self.uri,
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", COMMAND, *words]
        return subprocess.Popen(command, env=self.environment, start_new_session=True)

    def finish(self, *words: str) -> None:
        assert self.start(*words).wait(timeout=240) == 0

    def wait_for_rows(self, count: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            journals = list(self.results.glob("null/*/journal.jsonl"))
            if journals and journals[0].read_text().count('"row"') >= count:
                return
            time.sleep(0.05)
        raise AssertionError(f"no {count} rows before the driver ended or two minutes passed")

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """What reports read, without what may differ: times and run ids."""
        (parent,) = frames.runs(self.uri)["parent_run_id"]
        trials = frames.trials(self.uri, parent)
        steps = frames.steps(self.uri, parent)
        trials = trials.drop(columns=["run_id", "cost/seconds", "start", "end"])
        return trials, steps[steps["metric"] != "cost/seconds"].drop(columns=["time"])

    def status(self) -> str:
        (status,) = frames.runs(self.uri)["status"]
        return str(status)


@pytest.fixture(scope="session")
def undisturbed(null_file, tmp_path_factory, template_store) -> tuple[pd.DataFrame, pd.DataFrame]:
    driver = Driver(tmp_path_factory.mktemp("undisturbed"), template_store)
    driver.finish("search", str(null_file), "--scale", "smoke", "--ray")
    assert driver.status() == "FINISHED"
    return driver.frames()


def assert_same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(
            one.reset_index(drop=True), other.reset_index(drop=True), check_exact=True
        )


def kill_and_resume(driver: Driver, null_file: Path, after_rows: int) -> None:
    process = driver.start("search", str(null_file), "--scale", "smoke", "--ray")
    driver.wait_for_rows(after_rows, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    driver.finish("resume", "--ray")


@pytest.mark.timeout(400)
def test_kill_nine_then_resume(null_file, tmp_path, template_store, undisturbed) -> None:
    driver = Driver(tmp_path / "killed", template_store)
    kill_and_resume(driver, null_file, after_rows=30)
    assert_same(driver.frames(), undisturbed)
    assert driver.status() == "FINISHED"
    assert len(runs.listing(driver.results)) == 1


@pytest.mark.timeout(400)
def test_ctrl_c_ends_cleanly_and_resumes(null_file, tmp_path, template_store, undisturbed) -> None:
    driver = Driver(tmp_path / "interrupted", template_store)
    process = driver.start("search", str(null_file), "--scale", "smoke", "--ray")
    driver.wait_for_rows(20, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=90) == 130
    assert driver.status() == "KILLED"
    driver.finish("resume", "--ray")
    assert_same(driver.frames(), undisturbed)
    assert driver.status() == "FINISHED"


@pytest.mark.timeout(1500)
def test_kill_nine_at_five_moments(null_file, tmp_path, template_store, undisturbed) -> None:
    rng = random.Random(0)
    for number in range(5):
        driver = Driver(tmp_path / f"killed{number}", template_store)
        kill_and_resume(driver, null_file, after_rows=rng.randrange(1, 60))
        assert_same(driver.frames(), undisturbed)
