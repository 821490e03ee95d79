"""The journal of a run as two data frames: one row per trial, one row per step.

Tables, figures and verdicts are made from these frames. The journal has every number of the run,
so they do not depend on MLflow: it may be away, or have got only a part so far.

Example:
    >>> from tuneparts.journal import Journal, Row, TrialId, TrialStarted
    >>> path, trial = Path("journal.jsonl"), TrialId(arm="random", seed=0, index=0)
    >>> journal = Journal(path)
    >>> journal.append(TrialStarted(trial, config={"method": "standard"}, time=1.0))
    True
    >>> journal.append(Row(trial, step=10, metrics={"val/accuracy": 0.75}, time=2.0))
    True
    >>> journal.close()
    >>> trials(path).groupby("arm")["val/accuracy"].max().to_dict()
    {'random': 0.75}
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tuneparts import redaction, schema
from tuneparts.journal import TrialId, TrialRecord, records

TRIAL_COLUMNS = ["run_id", "trial", "arm", "seed", "index", "outcome", "error", "start", "end"]
STEP_COLUMNS = ["trial", "arm", "seed", "index", "metric", "step", "time", "value"]
QUEUED = "queued"
"""Outcome of a trial that waits for its first worker."""
RUNNING = "running"
"""Outcome of a trial that has begun and not ended; the others are those of `journal.Outcome`."""


def trials(journal: Path, run_ids: Mapping[TrialId, str] | None = None) -> pd.DataFrame:
    """One row per trial, sorted by arm, seed and index.

    Besides `TRIAL_COLUMNS` there is a column `param.<path>` for each value of the config, and a
    column for each metric, under its schema name, with the value at the last step that has it.
    Secrets in configs are masked: frames are written to files that people share.

    Args:
        journal: The file `journal.jsonl` of a run.
        run_ids: The MLflow run of each trial; the column `run_id` is empty for the others.
    """
    redactor = redaction.of_process()
    rows = [
        _trial_row(trial, record, (run_ids or {}).get(trial, ""), redactor)
        for trial, record in _sorted(journal)
    ]
    params = sorted({name for row in rows for name in row if name.startswith("param.")})
    metrics = sorted({name for row in rows for name in row} - {*TRIAL_COLUMNS, *params})
    frame = pd.DataFrame(rows, columns=[*TRIAL_COLUMNS, *params, *metrics])
    return frame.assign(start=_times(frame["start"]), end=_times(frame["end"]))


def steps(journal: Path, metrics: Iterable[str] | None = None) -> pd.DataFrame:
    """One row per trial, metric and step, sorted by them.

    Args:
        journal: The file `journal.jsonl` of a run.
        metrics: Schema names to read; all when None.
    """
    wanted = None if metrics is None else set(metrics)
    rows = [
        (str(trial), trial.arm, trial.seed, trial.index, name, row.step, row.time, float(value))
        for trial, record in _sorted(journal)
        for row in record.rows.values()
        for name, value in row.metrics.items()
        if _is_known(name) and (wanted is None or name in wanted)
    ]
    frame = pd.DataFrame(rows, columns=STEP_COLUMNS)
    order = ["arm", "seed", "index", "metric", "step"]
    return frame.assign(time=_times(frame["time"])).sort_values(order, ignore_index=True)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a config by their path, joined with dots; a list is a leaf.

    Example:
        >>> flat({"net": {"name": "mlp", "widths": [8, 8]}})
        {'net.name': 'mlp', 'net.widths': [8, 8]}
    """
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _sorted(journal: Path) -> list[tuple[TrialId, TrialRecord]]:
    """A run that has just been created has no journal yet, and so no trials."""
    return sorted(records(journal).items()) if journal.exists() else []


def _trial_row(
    trial: TrialId, record: TrialRecord, run_id: str, redactor: redaction.Redactor
) -> dict[str, Any]:
    last: dict[str, float] = {}
    # A metric need not be in every row (test scores come at the end), so the newest of each.
    for step in sorted(record.rows):
        last |= record.rows[step].metrics
    return {
        "run_id": run_id,
        "trial": str(trial),
        "arm": trial.arm,
        "seed": trial.seed,
        "index": trial.index,
        "outcome": _outcome(record),
        "error": redactor.text(record.end.message) if record.end else "",
        "start": record.start,
        "end": record.end.time if record.end else None,
        **{f"param.{path}": leaf for path, leaf in flat(redactor.tree(record.config)).items()},
        **{name: float(value) for name, value in last.items() if _is_known(name)},
    }


def _outcome(record: TrialRecord) -> str:
    if record.end is not None:
        return record.end.outcome
    return QUEUED if record.start is None else RUNNING


def _times(seconds: "pd.Series[float]") -> "pd.Series[pd.Timestamp]":
    """Seconds since 1970 as times in UTC, to the millisecond, which is what MLflow keeps."""
    return pd.to_datetime((1000 * seconds.astype(float)).round(), unit="ms", utc=True)


def _is_known(metric: str) -> bool:
    """Whether the schema has the metric; how an unknown one is shown would be a guess."""
    return schema.find(metric) is not None
