"""Read runs, trials and steps from an MLflow store, for who does not have the run's folder."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from tuneparts.core.errors import DataMissingError
from tuneparts.search.events import TrialId
from tuneparts.search.frames import STEP_COLUMNS
from tuneparts.search.frames import TRIAL_COLUMNS as FROM_JOURNAL
from tuneparts.tracking import store
from tuneparts.tracking.card import COUNTS_TAG, KIND_TAG, PARENT_TAG, RUN_TAG, TRIAL_TAG, _decode

_OUTCOMES = ["finished", "stopped", "failed", "killed", "running", "queued"]
_RUN_FACTS = ["run", "search", "scale", "status", "start", "digest", "commit", "parent_run_id"]
RUN_COLUMNS = [*_RUN_FACTS, *_OUTCOMES]
TRIAL_COLUMNS = [*FROM_JOURNAL, "status"]
"""Those of `tuneparts.search.frames`, and MLflow's own word for how a run ended."""


def runs(uri: str, search: str | None = None) -> pd.DataFrame:
    """One row per parent run, newest first, with the newest counts of its trials by outcome."""
    found = []
    if store.exists(uri):
        client = store.client(uri)
        ids = [experiment.experiment_id for experiment in client.search_experiments()]
        found = store._search(client, ids, f"tags.`{KIND_TAG}` = 'search'")
    rows = [_run_row(run) for run in found if search in {None, run.data.tags["search"]}]
    if not rows:
        which = "" if search is None else f" of `{search}`"
        start = f"start with `tuneparts search {search or 'rotated_digits'}`"
        raise DataMissingError(f"no runs{which} yet in {uri}; {start}.")
    frame = pd.DataFrame(rows, columns=RUN_COLUMNS)
    return frame.sort_values("start", ascending=False, kind="stable", ignore_index=True)


def trials(uri: str, parent_run_id: str, *, params: bool = True) -> pd.DataFrame:
    """One row per trial, sorted by arm, seed and index.

    Besides `TRIAL_COLUMNS` there is a column `param.<path>` per param (unless left out) and a
    column per metric, under its schema name, with the value at the last step.
    """
    rows = [_trial_row(run, params=params) for run in _trial_runs(uri, parent_run_id)]
    more = {name for row in rows for name in row}.difference(TRIAL_COLUMNS)
    more_in_order = sorted(more, key=lambda name: (not name.startswith("param."), name))
    frame = pd.DataFrame(rows, columns=[*TRIAL_COLUMNS, *more_in_order])
    return frame.sort_values(["arm", "seed", "index"], kind="stable", ignore_index=True)


def steps(uri: str, parent_run_id: str, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """One row per trial, metric and step, sorted by them; all metrics when None."""
    return _steps(uri, _trial_runs(uri, parent_run_id), metrics)


def trial(uri: str, run_id: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """One trial by its run id: its row as in `trials` with its parent, its steps as in `steps`."""
    from mlflow.exceptions import MlflowException

    run: Any = None
    if store.exists(uri):
        with suppress(MlflowException):  # what is not there is reported below
            run = store.client(uri).get_run(run_id)
    if run is None or TRIAL_TAG not in run.data.tags:
        raise DataMissingError(f"{uri}: the store has no trial of run id {run_id}.")
    row = {**_trial_row(run, params=True), "parent_run_id": run.data.tags[PARENT_TAG]}
    return row, _steps(uri, [run], None)


def _trial_runs(uri: str, parent_run_id: str) -> list[Any]:
    if not store.exists(uri):
        raise DataMissingError(f"no runs yet in {uri}; start with `tuneparts search NAME`.")
    client = store.client(uri)
    parent = client.get_run(parent_run_id)  # refuses a run that is not there
    query = f"tags.`{PARENT_TAG}` = '{parent_run_id}' and tags.`{KIND_TAG}` = 'trial'"
    return store._search(client, [parent.info.experiment_id], query)


def _steps(uri: str, found: Sequence[Any], metrics: Sequence[str] | None) -> pd.DataFrame:
    metrics_of = {
        str(run.info.run_id): {n for n in run.data.metrics if metrics is None or n in metrics}
        for run in found
    }
    points = store.points(store.client(uri), metrics_of)
    frame = pd.DataFrame(points, columns=["run_id", "metric", "step", "milliseconds", "value"])
    identity = pd.DataFrame(map(_identity, found), columns=["run_id", *STEP_COLUMNS[:4]])
    frame = frame.merge(identity, on="run_id")
    frame["time"] = pd.to_datetime(frame["milliseconds"], unit="ms", utc=True)
    order = ["arm", "seed", "index", "metric", "step"]
    frame = frame.sort_values([*order, "milliseconds"], kind="stable")
    return frame.drop_duplicates(order)[STEP_COLUMNS].reset_index(drop=True)


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


def _trial_row(run: Any, *, params: bool) -> dict[str, Any]:
    info, data = run.info, run.data
    return {
        **_identity(run),
        "status": str(info.status),
        "outcome": data.tags.get("outcome", str(info.status).lower()),
        "error": data.tags.get("error", ""),
        "start": _time(info.start_time),
        # MLflow keeps the end of a run that was killed and runs again.
        "end": None if info.status == "RUNNING" else _time(info.end_time),
        **({f"param.{key}": _decode(text) for key, text in data.params.items()} if params else {}),
        **{name: store._restore_infinity(value) for name, value in data.metrics.items()},
    }


def _identity(run: Any) -> dict[str, Any]:
    trial = TrialId.parse(run.data.tags[TRIAL_TAG])
    return {"run_id": str(run.info.run_id), "trial": str(trial), **asdict(trial)}


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
