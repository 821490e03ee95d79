"""SIGTERM and SIGHUP end a search as Ctrl-C does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuneparts import executors
from tuneparts.cli import _running as verb
from tuneparts.search import runs
from tuneparts.tracking import frames, store

SLOW = '''
"""Does it end?"""
import time
from tuneparts import Arm, Search
from tuneparts.methods.objective import Objective

def slow(config, report):
    for step in range(1, 1000):
        report({"val/score": float(step)})
        time.sleep(0.05)

def search(scale):
    config = Objective(function=slow, reports={"val/score": "max"}, steps=1000, interval=1)
    return Search(
        name="slow", question="Does it end?", scale=scale, metric="val/score", steps=1000,
        seeds=(0,), arms=(Arm(name="slow", config=config),),
    )
'''


@pytest.mark.mlflow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_exit_code_is_the_usual_one_and_the_way_on_is_said(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)

    def execute(*args: object, **options: object) -> str:
        try:
            signal.raise_signal(number)
            return "done"
        except KeyboardInterrupt:
            return "interrupted"

    monkeypatch.setattr(executors, "execute", execute)
    with pytest.raises(SystemExit) as ended:
        verb.search("rotated_digits", scale="smoke", local=True, seeds="0", arms="none")
    assert ended.value.code == 128 + number
    assert "tuneparts resume rotated_digits/" in capsys.readouterr().out
    assert signal.getsignal(number) is before


@pytest.mark.slow
@pytest.mark.timeout(1500)  # a busy machine takes minutes to start Ray, and to put it away
@pytest.mark.mlflow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("place", ["--local", "--ray"])
def test_a_real_search_is_put_away(
    results: Path, tmp_path: Path, number: signal.Signals, place: str
) -> None:
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    command = [sys.executable, "-m", "tuneparts.cli.main", "search", str(file), place]
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    )
    limit = time.monotonic() + 600
    while not any("row" in p.read_text() for p in results.glob("slow/*/journal.jsonl")):
        assert time.monotonic() < limit, "no row"
        assert driver.poll() is None, driver.stdout and driver.stdout.read()
        time.sleep(0.2)
    driver.send_signal(number)
    said, _ = driver.communicate(timeout=600)
    assert driver.returncode == 128 + number, said
    assert "tuneparts resume slow/" in said
    (found,) = frames.runs(store.resolve()).to_dict("records")
    assert found["status"] == "KILLED"
    assert runs.named(results, None).search.name == "slow"
