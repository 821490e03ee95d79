"""Runs, trials and steps read back from the store as tidy frames."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from tuneparts.errors import DataMissingError
from tuneparts.journal import TrialId
from tuneparts.tracking import children, history, store
from tuneparts.tracking.card import COUNTS_TAG, KIND_TAG, RUN_TAG, TRIAL_TAG
from tuneparts.tracking.params import decode

RUN_COLUMNS = [
    "run",
    "search",
    "scale",
    "status",
    "start",
    "digest",
    "commit",
    "parent_run_id",
    "finished",
    "stopped",
    "failed",
    "killed",
    "running",
]
TRIAL_COLUMNS = [
    "run_id",
    "trial",
    "arm",
    "seed",
    "index",
    "status",
    "outcome",
    "error",
    "start",
    "end",
]
STEP_COLUMNS = ["trial", "arm", "seed", "index", "metric", "step", "time", "value"]
_OUTCOMES = ["finished", "stopped", "failed", "killed", "running"]


def runs(uri: str, search: str | None = None) -> pd.DataFrame:
    """One row per parent run, newest first.

    The counts of trials by outcome are as of the driver's last word.

    Raises:
        DataMissingError: The store has no run of that search, or none at all.
    """
    found = []
    if store.exists(uri):
        client = store.client(uri)
        ids = [experiment.experiment_id for experiment in client.search_experiments()]
        found = store.search(client, ids, f"tags.`{KIND_TAG}` = 'search'")
    rows = [_run_row(run) for run in found]
    rows = [row for row in rows if search is None or row["search"] == search]
    if not rows:
        which = "" if search is None else f" of `{search}`"
        raise DataMissingError(
            f"no runs{which} yet in {uri}; start with `tuneparts search "
            f"{search or 'rotated_digits'}`."
        )
    frame = pd.DataFrame(rows, columns=RUN_COLUMNS)
    return frame.sort_values("start", ascending=False, kind="stable", ignore_index=True)


def trials(uri: str, parent_run_id: str, *, params: bool = True) -> pd.DataFrame:
    """One row per trial, by arm, seed and index.

    Besides `TRIAL_COLUMNS` there is a column `param.<path>` per param (unless left out) and a
    column per metric, under its schema name, with the value at the last step.
    """
    rows = [_trial_row(run) for run in _children(uri, parent_run_id, params=params)]
    given = sorted({name for row in rows for name in row if name.startswith("param.")})
    known = {*TRIAL_COLUMNS, *given}
    metrics = sorted({name for row in rows for name in row if name not in known})
    frame = pd.DataFrame(rows, columns=[*TRIAL_COLUMNS, *given, *metrics])
    return frame.sort_values(["arm", "seed", "index"], kind="stable", ignore_index=True)


def steps(uri: str, parent_run_id: str, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """One row per trial, metric and step, sorted by them; all metrics when None."""
    return _steps(uri, _children(uri, parent_run_id, params=False), metrics)


def _steps(
    uri: str, found: Sequence[children.Child], metrics: Sequence[str] | None
) -> pd.DataFrame:
    trial_of = {run.run_id: run.tags[TRIAL_TAG] for run in found}
    metrics_of = {
        run.run_id: set(run.metrics).intersection(run.metrics if metrics is None else metrics)
        for run in found
    }
    points = history.points(uri, metrics_of)
    frame = pd.DataFrame(points, columns=["run_id", "metric", "step", "milliseconds", "value"])
    identity = pd.DataFrame(
        [(run_id, text, *_identity(text)) for run_id, text in trial_of.items()],
        columns=["run_id", "trial", "arm", "seed", "index"],
    )
    frame = frame.merge(identity, on="run_id")
    frame["time"] = pd.to_datetime(frame["milliseconds"], unit="ms", utc=True)
    order = ["arm", "seed", "index", "metric", "step"]
    frame = frame.sort_values([*order, "milliseconds"], kind="stable")
    frame = frame.drop_duplicates(order)
    return frame[STEP_COLUMNS].reset_index(drop=True)


def trial(uri: str, run_id: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """One trial by its run id: its row as in `trials` with its parent, its steps as in `steps`.

    Raises:
        DataMissingError: The store has no such trial.
    """
    child = children.one(uri, run_id) if store.exists(uri) else None
    if child is None:
        raise DataMissingError(
            f"a trial has a run in the store, but {uri} has none of id {run_id}."
        )
    row = {**_trial_row(child), "parent_run_id": child.parent}
    return row, _steps(uri, [child], None)


def _children(uri: str, parent_run_id: str, *, params: bool) -> list[children.Child]:
    if not store.exists(uri):
        raise DataMissingError(f"no runs yet in {uri}; start with `tuneparts search NAME`.")
    store.client(uri).get_run(parent_run_id)  # refuses a run that is not there
    return children.read(uri, parent_run_id, params=params)


def _run_row(run: Any) -> dict[str, Any]:
    tags: Mapping[str, str] = run.data.tags
    counts = json.loads(tags.get(COUNTS_TAG, "{}"))
    return {
        "run": tags[RUN_TAG],
        **{name: tags[name] for name in ("search", "scale", "digest", "commit")},
        "status": run.info.status,
        "start": _time(run.info.start_time),
        "parent_run_id": run.info.run_id,
        **{outcome: counts.get(outcome, 0) for outcome in _OUTCOMES},
    }


def _trial_row(run: children.Child) -> dict[str, Any]:
    arm, seed, index = _identity(run.tags[TRIAL_TAG])
    return {
        "run_id": run.run_id,
        "trial": run.tags[TRIAL_TAG],
        "arm": arm,
        "seed": seed,
        "index": index,
        "status": run.status,
        "outcome": run.tags.get("outcome", run.status.lower()),
        "error": run.tags.get("error", ""),
        "start": _time(run.start),
        "end": None if run.status == "RUNNING" else _time(run.end),
        **{f"param.{key}": decode(text) for key, text in run.params.items()},
        **run.metrics,
    }


def _identity(text: str) -> tuple[str, int, int]:
    trial = TrialId.parse(text)
    return trial.arm, trial.seed, trial.index


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
