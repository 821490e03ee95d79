"""A run as files: an Optuna storage, CSV, Parquet, or results to publish.

Published results are a few small files from which tables, figures and verdicts are made without the
journal, the checkpoints or MLflow. What is the same in all trials of each arm is written once, into
`constants.json`, and a row of steps names its trial and nothing else of it; reading puts both back.
"""

import io
import json
import math
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tuneparts.core import atomic, schema, settings
from tuneparts.core.errors import DataError, DataMissingError, StorageError, UnknownNameError
from tuneparts.core.redaction import of_process
from tuneparts.results.results import Results
from tuneparts.results.run_data import RunData
from tuneparts.search import runs
from tuneparts.search.arm import at
from tuneparts.search.card import RunCard
from tuneparts.search.frames import DRAWN_COLUMNS, SCHEDULE_COLUMNS, STEP_COLUMNS, flat

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from tuneparts.search.arm import Arm

_KINDS = ("optuna", "csv", "parquet", "results")
MOST_BYTES = 450_000
"""Size up to which steps are written, as many as fit: see `_steps`."""
_PROVENANCE = (
    "created", "digest", "command", "commit", "versions", "machine", "packages", "repository",
    "history",
)  # fmt: skip
_EMPTY = {"steps": list(STEP_COLUMNS), "schedules": SCHEDULE_COLUMNS, "drawn": DRAWN_COLUMNS}
_TEXT = {"trial", "arm", "outcome", "error", "metric", "path", "trained_as", "name"}
"""Columns that are text even where they are empty."""
_OF_TRIAL = ["arm", "seed", "index"]
"""What a row of another frame repeats of its trial."""


def _export(results: Results, to: str, out: Path | None = None) -> list[Path]:
    """Write a run for other programs; see `Results.export`."""
    if to not in _KINDS:
        raise UnknownNameError("export", to, _KINDS)
    folder = atomic.inside(results.run.folder, results.run.folder / "export" / "results").parent
    try:
        if to == "optuna":
            return [_optuna(results, out or folder / "optuna.db")]
        if to == "results":
            return _publish(results, out or folder / "results")
        paths = [(out or folder) / f"{name}.{to}" for name in ("trials", "steps")]
        for path, frame in zip(paths, (results.trials, results.steps), strict=True):
            with atomic.replacing(path) as file:
                if to == "csv":
                    file.write(_csv(frame).encode())
                    continue
                plain = frame.copy()  # columns of one type each; what is no plain value is JSON
                for name in (name for name in frame if frame[name].dtype == object):
                    is_text = frame[name].map(lambda one: one is None or isinstance(one, str))
                    plain[name] = frame[name].where(is_text, frame[name].map(json.dumps))
                plain.to_parquet(file, index=False)
        return paths
    except OSError as error:
        raise StorageError(f"{results.run.name} cannot be exported: {error}") from error


def _optuna(results: Results, path: Path) -> Path:
    """One study per arm; its trials are those of all seeds, in the order in which they began."""
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    metric = schema.lookup(results.search.metric)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    for leftover in path.parent.glob(f"{partial.name}*"):  # of an export that was killed
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    storage: Any
    if path.suffix == ".db":
        storage = RDBStorage(f"sqlite:///{partial}")
    else:
        storage = JournalStorage(JournalFileBackend(str(partial)))
    direction = "maximize" if metric.direction is schema.Direction.UP else "minimize"
    for arm in results.search.arms:
        name = f"{results.run.name}/{arm.name}"
        study = optuna.create_study(storage=storage, study_name=name, direction=direction)
        study.set_user_attr("metric", metric.name)
        study.set_user_attr("question", of_process().text(results.search.question))
        study.add_trials(_studied(results, arm, metric.name))
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()
    partial.replace(path)
    return path


def _studied(results: Results, arm: "Arm", metric: str) -> "list[FrozenTrial]":
    """The trials of an arm as Optuna has them: stopped ones are pruned."""
    from optuna.trial import TrialState, create_trial

    states = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED}
    found = results.state.trials.items()
    known = [(t, r, r.end) for t, r in found if t.arm == arm.name and r.end is not None]
    known.sort(key=lambda one: one[1].start or 0.0)
    columns: dict[str, list[Any]] = {}
    for number, (_, record, _) in enumerate(known):  # a nested value has several parameters
        for name, value in flat({path: at(record.config, path) for path in arm.space}).items():
            columns.setdefault(name, [None] * len(known))[number] = value
    params = {name: _column(arm, name, values) for name, values in columns.items()}
    made = []
    for number, (trial, record, end) in enumerate(known):
        rows = sorted(record.rows.items())
        curve = {step: row.metrics[metric] for step, row in rows if metric in row.metrics}
        value = list(curve.values())[-1] if curve else None
        state = states.get(end.outcome, TrialState.FAIL)
        if state is TrialState.COMPLETE and value is None:
            state = TrialState.FAIL  # an arm of one trial need not report what selects
        one = create_trial(
            state=state,
            value=None if state is TrialState.FAIL else value,
            params={name: values[number] for name, (values, _) in params.items()},
            distributions={name: distribution for name, (_, distribution) in params.items()},
            intermediate_values=curve,
            user_attrs={"trial": str(trial), "seed": trial.seed, **record.latest},
        )
        one.datetime_start = datetime.fromtimestamp(record.start or end.time)
        one.datetime_complete = datetime.fromtimestamp(end.time)
        made.append(one)
    return made


def _column(arm: "Arm", name: str, column: list[Any]) -> "tuple[list[Any], BaseDistribution]":
    """Values as Optuna takes them: as they were drawn where it can hold them, else as words."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in column):
        numbers = [float(value) for value in column]
        is_log = bool(getattr(arm.space.get(name), "log", False)) and min(numbers, default=0) > 0
        bounds = [getattr(arm.space.get(name), side, None) for side in ("low", "high")]
        known = [*numbers, *(float(b) for b in bounds if isinstance(b, int | float))]
        return numbers, FloatDistribution(min(known), max(known), log=is_log)
    words = [v if isinstance(v, str) else json.dumps(v) for v in column]
    return words, CategoricalDistribution(tuple(dict.fromkeys(words)))


def _is_published(name: str | Path) -> bool:
    return all((Path(name) / file).is_file() for file in ("metadata.json", "trials.csv"))


def _publish(data: Results, folder: Path) -> list[Path]:
    """Write the results of a run into a folder; what it holds of earlier ones is replaced."""
    card, redactor = data.run.card, of_process()
    tree = {name: card[name] for name in _PROVENANCE if name in card}
    if "history" in tree:  # the final search holds what it was before, the card what is as it was
        tree["history"] = [
            {k: v for k, v in step.items() if k not in ("before", "user") and tree.get(k) != v}
            for step in tree["history"]
        ]
    trials, constants = _without_constants(data.trials.drop(columns="run_id"))
    trees = {"search": card["search"], "provenance": {"run": data.run.name, **tree}}
    texts = {"metadata.json": data.metadata.to_json()}
    for name, one in {**redactor.tree(trees), "constants": constants}.items():
        texts[f"{name}.json"] = json.dumps(one, indent=1, ensure_ascii=False) + "\n"
    texts["trials.csv"] = _csv(trials)
    frames = {"steps": _steps(data), "schedules": data.schedules, "drawn": data.drawn}
    for name, frame in frames.items():
        (folder / f"{name}.csv").unlink(missing_ok=True)
        text = _csv(frame.drop(columns=_OF_TRIAL))
        if len(frame) and len(text) <= MOST_BYTES:
            texts[f"{name}.csv"] = text
    for name, text in texts.items():
        atomic.write_text(folder / name, text)
    return [folder / name for name in texts]


def _steps(data: RunData) -> pd.DataFrame:
    """As many as fit: all, of selected trials, scores and costs of all, or of selected trials."""
    steps = data.steps
    chosen = steps["trial"].isin(data.selected["trial"])
    scores = {data.answer_metric, data.metadata.metric, "cost/updates", "cost/seconds"}
    is_score = steps["metric"].isin(scores)  # steps are the step itself
    for found in (steps, steps[chosen], steps[is_score]):
        if len(_csv(found.drop(columns=_OF_TRIAL))) <= MOST_BYTES:
            return found
    return steps[is_score & chosen]


def _without_constants(trials: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The columns that vary within an arm as text; and all columns, with what others are by arm."""
    text = _as_text(_csv(trials))
    free = [column for column in map(str, text) if column not in ("trial", *_OF_TRIAL)]
    counts = text.groupby("arm")[free].nunique().max()
    held = [column for column in free if counts[column] <= 1]
    arms = {
        row["arm"]: {column: row[column] for column in held if row[column]}
        for row in text.drop_duplicates("arm").to_dict("records")
    }
    return text.drop(columns=held), {"columns": list(text), "arms": arms}


class Published(Results):
    """What a run has found, read from published files; a DataError where one is damaged."""

    folder: Path
    find = None
    sample_grids = "Published results hold no images."

    def __init__(self, folder: Path) -> None:
        try:
            search = json.loads((folder / "search.json").read_text("utf-8"))
            card = RunCard.from_json((folder / "metadata.json").read_text("utf-8"))
            frames = {name: _typed_frame(text) for name, text in _texts(folder).items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder} holds no results that can be read: {error}") from error
        frames["trials"] = frames["trials"].assign(run_id="")
        facts = {"folder": folder, "name": folder.name, "search_facts": search, "metadata": card}
        vars(self).update(facts | frames)

    @property
    def run(self) -> runs.Run:  # type: ignore[override]
        """Published results have none: a DataMissingError."""
        raise DataMissingError(
            f"{self.folder} holds results only: no journal, checkpoints or nets. Ask whoever ran "
            "it, or run its search again; `search.json` has it."
        )

    @property
    def _report_folder(self) -> Path:
        return settings.current().results_dir / "published" / self.name / "report"


def _texts(folder: Path) -> dict[str, pd.DataFrame]:
    """All frames of published results, every cell as it is written."""
    trials = _as_text(folder / "trials.csv")
    constants = folder / "constants.json"
    if constants.is_file():  # earlier releases have every column
        read = json.loads(constants.read_bytes())
        held = {
            column: [read["arms"][arm].get(column, "") for arm in trials["arm"]]
            for column in read["columns"]
            if column not in trials
        }
        trials = trials.assign(**held)[read["columns"]]
    found = {"trials": trials}
    for name, columns in _EMPTY.items():
        path = folder / f"{name}.csv"
        text = _as_text(path) if path.is_file() else pd.DataFrame(columns=columns)
        if "arm" not in text:
            known = trials[["trial", *_OF_TRIAL]]
            if not set(text["trial"]) <= set(known["trial"]):
                raise ValueError(f"{path.name} has trials that trials.csv does not have")
            text = text.merge(known, on="trial", validate="m:1")
        found[name] = text[columns]
    return found


def _typed_frame(text: pd.DataFrame) -> pd.DataFrame:
    typed = {c: text[c] if c in _TEXT else _typed(text[c]) for c in text}
    typed |= {c: pd.to_datetime(text[c], utc=True) for c in ("start", "end") if c in text}
    return pd.DataFrame(typed)


def _typed(column: "pd.Series[str]") -> Any:
    """Numbers as they were written, to the last bit, which not every reader of pandas gives."""
    given = set(column) - {""}
    if not given:
        return math.nan
    for kind in ({"True": True, "False": False}.__getitem__, int, float):
        try:
            known = {value: kind(value) for value in given}
        except (KeyError, ValueError):
            continue
        return column.map({"": math.nan, **known}.get)
    return column.map(lambda value: value or math.nan)


def _as_text(csv: str | Path) -> pd.DataFrame:
    source = csv if isinstance(csv, Path) else io.StringIO(csv)
    return pd.read_csv(source, dtype=str, keep_default_na=False)


def _csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n"))
