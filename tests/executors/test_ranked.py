"""A trial on two GPUs, here two processes on the CPU: it reports and resumes like any other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tuneparts.errors import StorageError
from tuneparts.executors.worker import SegmentExecution, TrialSetting
from tuneparts.search import load
from tuneparts.search.algorithms import whole_trial

pytestmark = pytest.mark.slow
CHANGES = ["none.passes=40", "none.interval=10"]


def _execution(storage: Path, gpus: float) -> SegmentExecution:
    search = load.load("rotated_digits", scale="smoke", arms=["none"], changes=CHANGES)
    segment = whole_trial(search.arm("none"), seed=0, index=0, values={})
    return SegmentExecution(segment, TrialSetting.of(search, str(storage)), gpus=gpus)


def _rows(execution: SegmentExecution, num: int | None = None) -> list[dict[str, Any]]:
    rows: list[Any] = []
    while num is None or len(rows) < num:
        report = execution.step()
        assert report.failure is None, report.failure
        rows += report.rows
        if report.done:
            break
    return [{k: v for k, v in row.items() if k != "cost/seconds"} for row in rows]


def _losses(rows: Sequence[dict[str, Any]]) -> list[float]:
    return [row["train/loss"] for row in rows]


def test_a_stopped_trial_on_two_gpus_goes_on_bit_for_bit(tmp_path: Path) -> None:
    alone = _rows(_execution(tmp_path / "alone", 0))
    whole = _rows(_execution(tmp_path / "whole", 2))
    assert _losses(whole) == pytest.approx(_losses(alone), rel=2e-4)
    stopped = _execution(tmp_path / "stopped", 2)
    _rows(stopped, 2)
    stopped.close()
    assert not torch.distributed.is_initialized()
    assert _rows(_execution(tmp_path / "stopped", 2)) == whole
    assert not torch.distributed.is_initialized()
    # One GPU can go on with what two have begun.
    assert _losses(_rows(_execution(tmp_path / "stopped", 1))) == _losses(whole)


def test_a_rank_that_dies_is_a_lost_worker_and_no_failure_of_the_trial(tmp_path: Path) -> None:
    execution = _execution(tmp_path, 2)
    _rows(execution, 1)
    ranked = execution._ranked
    assert ranked is not None
    ranked._processes[0].kill()
    with pytest.raises(StorageError, match="all processes of a trial on several GPUs must live"):
        execution.step()
    assert not torch.distributed.is_initialized()
    assert len(_rows(_execution(tmp_path, 2))) == 4
