"""A run in the files of other programs: an Optuna storage, CSV, Parquet."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pandas as pd

from tuneparts.core import atomic, schema
from tuneparts.core.errors import StorageError, UnknownNameError
from tuneparts.core.redaction import of_process
from tuneparts.search.events import TrialId
from tuneparts.search.frames import flat
from tuneparts.search.journal import records
from tuneparts.search.state import TrialRecord

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from tuneparts.results.results import Results
    from tuneparts.search.arm import Arm

Kind: TypeAlias = Literal["optuna", "csv", "parquet", "results"]


def export(results: "Results", to: str, out: Path | None = None) -> list[Path]:
    """Write a run for other programs; files of an earlier export are replaced.

    Args:
        results: Of the run.
        to: `optuna`: a storage with one study per arm; `csv` or `parquet`: trials and steps;
            `results`: what `tuneparts report` and `compare` need, to be published.
        out: The storage (`.db` for SQLite, anything else for Optuna's journal), or for the
            others a folder; in the run's folder `export` when None.

    Returns:
        What was written.
    """
    if to not in get_args(Kind):
        raise UnknownNameError("export", to, get_args(Kind))
    folder = atomic.inside(results.run.folder, results.run.folder / "export" / "results").parent
    try:
        if to == "optuna":
            return [_optuna(results, out or folder / "optuna.db")]
        if to == "results":
            from tuneparts.results import published

            return published.write(results, out or folder / "results")
        return _frames(results, to, out or folder)
    except OSError as error:
        raise StorageError(f"{results.run.name} cannot be exported: {error}") from error


def _frames(results: "Results", to: str, folder: Path) -> list[Path]:
    """Trials and steps, one row each; what is no plain value of a column is JSON."""
    written = []
    for name, frame in {"trials": results.trials, "steps": results.steps}.items():
        path = folder / f"{name}.{to}"
        if to == "csv":
            atomic.write_text(path, frame.to_csv(index=False, lineterminator="\n"))
        else:
            with atomic.replacing(path) as file:
                _plain(frame).to_parquet(file, index=False)
        written.append(path)
    return written


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of one type each, as Parquet wants them."""
    plain = frame.copy()
    for name in frame:
        if frame[name].dtype == object:
            is_text = frame[name].map(lambda value: value is None or isinstance(value, str))
            plain[name] = frame[name].where(is_text, frame[name].map(json.dumps))
    return plain


def _optuna(results: "Results", path: Path) -> Path:
    """One study per arm; its trials are those of all seeds, in the order in which they began."""
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search, metric = results.search, schema.lookup(results.search.metric)
    known = sorted(
        records(results.run.folder / "journal.jsonl").items(), key=lambda one: one[1].start or 0.0
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    for leftover in path.parent.glob(f"{partial.name}*"):  # of an export that was killed
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    storage: Any = (
        RDBStorage(f"sqlite:///{partial}")
        if path.suffix == ".db"
        else JournalStorage(JournalFileBackend(str(partial)))
    )
    for arm in search.arms:
        own = {t: r for t, r in known if t.arm == arm.name and r.end is not None}
        study = optuna.create_study(
            storage=storage,
            study_name=f"{results.run.name}/{arm.name}",
            direction="maximize" if metric.direction is schema.Direction.UP else "minimize",
        )
        study.set_user_attr("metric", metric.name)
        study.set_user_attr("question", of_process().text(search.question))
        study.add_trials(_studied(arm, own, metric.name))
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()
    partial.replace(path)
    return path


def _studied(arm: "Arm", own: Mapping[TrialId, TrialRecord], metric: str) -> "list[FrozenTrial]":
    """The trials of an arm as Optuna has them: stopped ones are pruned."""
    from datetime import datetime

    from optuna.trial import TrialState, create_trial

    states = {
        "finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL,
    }  # fmt: skip
    values = {
        path: [flat({"at": _at(record.config, path)}) for record in own.values()]
        for path in arm.space
    }
    params, distributions = _params(arm, values)
    made = []
    for number, (trial, record) in enumerate(own.items()):
        assert record.end is not None
        curve = {
            s: r.metrics[metric] for s, r in sorted(record.rows.items()) if metric in r.metrics
        }
        value = list(curve.values())[-1] if curve else None
        state = states[record.end.outcome]
        if state is TrialState.COMPLETE and value is None:
            state = TrialState.FAIL  # an arm of one trial need not report what selects
        last: dict[str, float] = {}
        for step in sorted(record.rows):
            last |= record.rows[step].metrics
        one = create_trial(
            state=state,
            value=None if state is TrialState.FAIL else value,
            params={name: column[number] for name, column in params.items()},
            distributions=distributions,
            intermediate_values=curve,
            user_attrs={"trial": str(trial), "seed": trial.seed, **last},
        )
        one.datetime_start = datetime.fromtimestamp(record.start or record.end.time)
        one.datetime_complete = datetime.fromtimestamp(record.end.time)
        made.append(one)
    return made


def _at(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _params(
    arm: "Arm", values: Mapping[str, list[dict[str, Any]]]
) -> "tuple[dict[str, list[Any]], dict[str, BaseDistribution]]":
    """Columns of parameters with a distribution each; those of a nested value are several."""
    columns: dict[str, list[Any]] = {}
    for path, found in values.items():
        names = dict.fromkeys(name for one in found for name in one)
        for name in names:
            columns[path + name.removeprefix("at")] = [one.get(name) for one in found]
    distributions = {}
    for name, column in columns.items():
        columns[name], distributions[name] = _column(arm, name, column)
    return columns, distributions


def _column(arm: "Arm", name: str, column: list[Any]) -> "tuple[list[Any], BaseDistribution]":
    """Values as Optuna takes them: as they were drawn where it can hold them, else as words."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in column):
        numbers = [float(value) for value in column]
        is_log = bool(getattr(arm.space.get(name), "log", False)) and min(numbers, default=0) > 0
        bounds = [getattr(arm.space.get(name), side, None) for side in ("low", "high")]
        known = [float(b) for b in bounds if isinstance(b, int | float)]
        low, high = min([*numbers, *known]), max([*numbers, *known])
        return numbers, FloatDistribution(low, high, log=is_log)
    words = [v if isinstance(v, str) else json.dumps(v) for v in column]
    return words, CategoricalDistribution(tuple(dict.fromkeys(words)))
