"""Trains trials of a finished run again, and compares every number that they reported."""

import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuneparts.core.errors import DataMissingError
from tuneparts.search import runs
from tuneparts.search.events import Row, TrialId
from tuneparts.search.journal import records
from tuneparts.search.state import TrialRecord

if TYPE_CHECKING:  # brings torch
    from tuneparts.executors.worker import TrialSetting
    from tuneparts.search.arm import Arm
    from tuneparts.search.segment import Segment

_EXCEPTED = ("cost/seconds", "system/")
"""Numbers that are not the same twice: time, and what a worker used of its machine."""


@dataclass(frozen=True)
class Difference:
    """A number that came out otherwise; NaN where one of the two is missing."""

    trial: TrialId
    step: int
    metric: str
    reported: float
    found: float


@dataclass(frozen=True)
class Verified:
    """What became of one trial."""

    trial: TrialId
    num_compared: int
    """Numbers that were compared."""
    differences: tuple[Difference, ...]
    failure: str = ""
    """Why it could not be trained again, if it could not."""


def candidates(run: runs.Run) -> dict[TrialId, TrialRecord]:
    """The trials of a run that can be trained again alone.

    They finished or were stopped by their algorithm, and went on from no other trial's state.

    Raises:
        DataMissingError: There are none.
    """
    found = {
        trial: record
        for trial, record in sorted(records(run.folder / "journal.jsonl").items())
        if record.end is not None and record.end.outcome != "failed" and record.rows
        if len(record.starts) == 1
    }
    if not found:
        raise DataMissingError(
            f"a trial is trained again when it has finished, but {run.name} has none that did. "
            f"Continue it with `tuneparts resume {run.name}`."
        )
    return found


def verify(run: runs.Run, *, num_trials: int = 5, seed: int = 0) -> Iterator[Verified]:
    """Train randomly chosen trials again in this process, one after the other.

    Nothing in the run's folder is changed. All trials are chosen if there are no more than
    `num_trials`; `seed` is that of the choice.
    """
    from tuneparts.executors.worker import TrialSetting
    from tuneparts.search.segment import Segment

    found = candidates(run)
    chosen = sorted(random.Random(seed).sample(sorted(found), min(num_trials, len(found))))
    with tempfile.TemporaryDirectory() as folder:
        setting = TrialSetting.of(run.search, folder, run.code)
        for trial in chosen:
            record = found[trial]
            arm = run.search.arm(trial.arm)
            segment = Segment(trial, record.config, until=max(record.rows))
            rows, failure = _trained(segment, setting, arm)
            pairs = list(_compared(record.rows, rows))
            others = tuple(
                one
                for one in pairs
                if one.reported != one.found
                and not (math.isnan(one.reported) and math.isnan(one.found))
            )
            yield Verified(trial, len(pairs), others, failure)


def _trained(
    segment: "Segment", setting: "TrialSetting", arm: "Arm"
) -> tuple[list[Mapping[str, float]], str]:
    from tuneparts.executors.worker import Report, reports_of
    from tuneparts.search.groups import Group

    threads = max(1, int(arm.resources.cpus))  # as executors give them; sums depend on it
    group = Group((segment,), arm.packed)
    rows: list[Mapping[str, float]] = []
    report = Report()
    for (report,) in reports_of(group, setting, threads=threads, gpus=arm.resources.gpus):
        rows += list(report.rows)
    return rows, report.failure or report.disk_full or ""


def _compared(
    reported: Mapping[int, Row], found: Sequence[Mapping[str, float]]
) -> Iterator[Difference]:
    """All pairs of numbers, the same ones too."""
    again = {int(row["cost/passes"]): row for row in found}
    for step in sorted({*reported, *again}):
        trial = next(iter(reported.values())).trial
        before = reported[step].metrics if step in reported else {}
        after = again.get(step, {})
        for metric in sorted({*before, *after}):
            if not metric.startswith(_EXCEPTED):
                values = before.get(metric, math.nan), after.get(metric, math.nan)
                yield Difference(trial, step, metric, *values)
