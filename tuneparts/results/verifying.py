"""Trains trials of a finished run again, and compares every number that they reported."""

import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tuneparts.core.errors import DataMissingError
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import Report, reports_of
from tuneparts.search import runs
from tuneparts.search.events import TrialId
from tuneparts.search.journal import records
from tuneparts.search.segment import Group, Segment

_EXCEPTED = ("cost/seconds", "system/")
"""Numbers that are not the same twice: time, and what a worker used of its machine."""


@dataclass(frozen=True)
class _Difference:
    """A number that came out otherwise; NaN where one of the two is missing."""

    trial: TrialId
    step: int
    metric: str
    reported: float
    found: float


@dataclass(frozen=True)
class _Verified:
    """What became of one trial."""

    trial: TrialId
    num_compared: int
    differences: tuple[_Difference, ...]
    failure: str = ""  # why it could not be trained again


def verify(run: runs.Run, *, num_trials: int = 5, seed: int = 0) -> Iterator[_Verified]:
    """Train randomly chosen trials again in this process, one after the other.

    They finished or were stopped by their algorithm, and went on from no other trial's state.
    `seed` is that of the choice. Nothing in the run's folder is changed.
    """
    ended = {
        trial: record
        for trial, record in records(run.folder / "journal.jsonl").items()
        if record.end is not None and record.end.outcome != "failed" and record.rows
        if len(record.starts) == 1
    }
    if not ended:
        raise DataMissingError(
            f"a trial is trained again when it has finished, but {run.name} has none that did. "
            f"Continue it with `tuneparts resume {run.name}`."
        )
    chosen = sorted(random.Random(seed).sample(sorted(ended), min(num_trials, len(ended))))
    with tempfile.TemporaryDirectory() as folder:
        setting = TrialSetting.of(run.search, folder, run.code)
        for trial in chosen:
            record, arm = ended[trial], run.search.arm(trial.arm)
            threads = max(1, int(arm.resources.cpus))  # as executors give them; sums depend on it
            group = Group((Segment(trial, record.config, until=max(record.rows)),), arm.packed)
            again: dict[tuple[int, str], float] = {}
            report = Report()
            for (report,) in reports_of(group, setting, threads=threads, gpus=arm.resources.gpus):
                for row in report.rows:
                    again |= {(int(row["cost/steps"]), name): x for name, x in row.items()}
            reported = {
                (step, name): x
                for step, row in record.rows.items()
                for name, x in row.metrics.items()
            }
            keys = [k for k in sorted({*reported, *again}) if not k[1].startswith(_EXCEPTED)]
            found = [(*k, reported.get(k, math.nan), again.get(k, math.nan)) for k in keys]
            differences = tuple(
                _Difference(trial, step, metric, x, y)
                for step, metric, x, y in found
                if x != y and not (math.isnan(x) and math.isnan(y))
            )
            failure = report.failure or report.disk_full or ""
            yield _Verified(trial, len(found), differences, failure)
