"""The journal of a run as data frames: one row per trial, one row per step, what trials drew.

Tables, figures and verdicts are made from these frames, and need no MLflow.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from tuneparts.core import redaction, schema
from tuneparts.search.arm import at
from tuneparts.search.events import TrialId
from tuneparts.search.state import RunState, TrialRecord

if TYPE_CHECKING:
    from tuneparts.search.spec import Search

_Source: TypeAlias = RunState | Path
"""The state of a run, or the file `journal.jsonl` that it is read from."""
TRIAL_COLUMNS = ["run_id", "trial", "arm", "seed", "index", "outcome", "error", "start", "end"]
SCHEDULE_COLUMNS = ["trial", "arm", "seed", "index", "steps", "trained_as", "path", "value"]
DRAWN_COLUMNS = ["trial", "arm", "seed", "index", "place", "name", "value", "is_log"]
STEP_COLUMNS = ["trial", "arm", "seed", "index", "metric", "step", "time", "value"]
QUEUED = "queued"
"""Outcome of a trial that waits for its first worker."""
NOT_STARTED = "not started"
"""Outcome of a trial that no worker had taken up when its seed was stopped."""
RUNNING = "running"
"""Outcome of a trial that has begun and not ended; the others are those of `journal.Outcome`."""


def trials(source: _Source, run_ids: Mapping[TrialId, str] | None = None) -> pd.DataFrame:
    """One row per trial, sorted by arm, seed and index.

    After `TRIAL_COLUMNS` there are columns `param.<path>` for each value of the config, and one for
    each metric, with the value at the last step that has it. `run_ids` has the MLflow run of each
    trial. Secrets in configs are masked.
    """
    redactor, state, rows = redaction.of_process(), _state(source), []
    for trial, record in sorted(state.trials.items()):
        waiting = NOT_STARTED if (trial.arm, trial.seed) in state.stops else QUEUED
        outcome = waiting if record.start is None else RUNNING
        leaves = flat(redactor.tree(record.config))
        rows.append(
            {
                "run_id": (run_ids or {}).get(trial, ""),
                "trial": str(trial),
                **vars(trial),
                "outcome": record.end.outcome if record.end else outcome,
                "error": redactor.text(record.end.message) if record.end else "",
                "start": record.start,
                "end": record.end.time if record.end else None,
                **{f"param.{path}": leaf for path, leaf in leaves.items()},
                **{name: float(x) for name, x in record.latest.items() if schema.find(name)},
            }
        )
    params = sorted({name for row in rows for name in row if name.startswith("param.")})
    metrics = sorted({name for row in rows for name in row} - {*TRIAL_COLUMNS, *params})
    frame = pd.DataFrame(rows, columns=[*TRIAL_COLUMNS, *params, *metrics])
    return frame.assign(start=_times(frame["start"]), end=_times(frame["end"]))


def steps(source: _Source, metrics: Iterable[str] | None = None) -> pd.DataFrame:
    """One row per trial, metric and step, sorted by them; of all metrics if none are named.

    A number of the config that changed during the trial is a metric too: `config/optimiser.lr`.
    """
    wanted = None if metrics is None else set(metrics)
    rows = [
        (str(trial), trial.arm, trial.seed, trial.index, name, row.step, row.time, float(value))
        for trial, record in sorted(_state(source).trials.items())
        for row in record.rows.values()
        for name, value in {**row.metrics, **_changed_numbers(record, row.step)}.items()
        if schema.find(name) and (wanted is None or name in wanted)
    ]
    frame = pd.DataFrame(rows, columns=STEP_COLUMNS)
    order = ["arm", "seed", "index", "metric", "step"]
    return frame.assign(time=_times(frame["time"])).sort_values(order, ignore_index=True)


def schedules(source: _Source) -> pd.DataFrame:
    """The values under which the weights of each trial were trained, where they changed.

    One row per trial, stretch of steps and value; `steps` is where the stretch begins, and
    `trained_as` the trial that its weights belonged to then.
    """
    found = dict(sorted(_state(source).trials.items()))
    redactor = redaction.of_process()
    changed: dict[str, list[str]] = {}
    for trial, record in found.items():
        known = changed.setdefault(trial.arm, [])
        known += [path for path in _changed_paths(record) if path not in known]
    rows = [
        (str(trial), trial.arm, trial.seed, trial.index, steps, str(source), path, leaves[path])
        for trial in found
        if changed[trial.arm]
        for steps, source, config in _lineage(found, trial)
        for leaves in [flat(redactor.tree(config))]
        for path in changed[trial.arm]
        if path in leaves
    ]
    return pd.DataFrame(rows, columns=SCHEDULE_COLUMNS)


def drawn(search: "Search", source: _Source) -> pd.DataFrame:
    """One row per trial and thing that was decided when its values were drawn.

    `place` is that of the field in the space. A dimension of an option has no row in other trials.
    Of a population, what a member has now is shown. Secrets are masked.
    """
    redactor = redaction.of_process()
    rows: list[tuple[Any, ...]] = []
    spaces = {arm.name: arm.space for arm in search.arms}
    for trial, record in sorted(_state(source).trials.items()):
        config = redactor.tree(record.config)
        for place, (field, dim) in enumerate(spaces.get(trial.arm, {}).items()):
            value = at(config, field)
            if not dim.contains(value):
                continue  # masked, or changed by the config itself
            for name, leaf, decided in dim.leaves(field, value):
                where = (str(trial), trial.arm, trial.seed, trial.index)
                rows.append((*where, place, name, leaf.shown(decided), leaf.is_log))
    return pd.DataFrame(rows, columns=DRAWN_COLUMNS)


def _lineage(
    found: Mapping[TrialId, TrialRecord], trial: TrialId, before: float = math.inf
) -> list[tuple[int, TrialId, Mapping[str, Any]]]:
    """Where each stretch of a trial's weights began, as which trial, and at which config."""
    stretches: list[tuple[int, TrialId, Mapping[str, Any]]] = []
    starts = found[trial].starts if trial in found else {}
    for steps in sorted((steps for steps in starts if steps < before), reverse=True):
        start = starts[steps]
        stretches.insert(0, (steps, trial, start.config))
        if start.donor is not None:
            return [*_lineage(found, TrialId.parse(start.donor), steps), *stretches]
    return stretches


def _changed_paths(record: TrialRecord) -> list[str]:
    if len(record.starts) < 2:
        return []
    configs = [flat(config) for config in record.configs]
    return [path for path in configs[0] if len({repr(one.get(path)) for one in configs}) > 1]


def _changed_numbers(record: TrialRecord, step: int) -> dict[str, float]:
    paths = _changed_paths(record)
    begun = [steps for steps in record.starts if steps < step]
    leaves = flat(record.starts[max(begun)].config) if paths and begun else {}
    numbers = {path: leaves[path] for path in paths if type(leaves.get(path)) in (int, float)}
    return {f"config/{path}": float(value) for path, value in numbers.items()}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a config by their path, joined with dots; a list is a leaf."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _state(source: _Source) -> RunState:
    return source if isinstance(source, RunState) else RunState.read(source)


def _times(seconds: "pd.Series[float]") -> "pd.Series[pd.Timestamp]":
    """Seconds since 1970 as times in UTC, to the millisecond, which is what MLflow keeps."""
    return pd.to_datetime((1000 * seconds.astype(float)).round(), unit="ms", utc=True)
