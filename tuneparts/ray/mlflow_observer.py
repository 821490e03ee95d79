"""Logs any Ray Tune experiment to MLflow: one parent run, one nested run per trial.

Ray's own `MLflowLoggerCallback` makes one flat run per trial and calls MLflow for each metric from
Tune's event loop. This one writes a journal on the driver's disk, and a thread replays it to MLflow
in batches. So training never waits for the store, a store that is away misses nothing, and after
`Tuner.restore` the same runs go on: none is doubled.
"""

import hashlib
import math
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow.fs
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS
from ray.tune.utils import flatten_dict

from tuneparts.core import provenance, settings
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.core.schema import Direction, Metric
from tuneparts.search.card import RunCard
from tuneparts.search.events import (
    Event,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
)
from tuneparts.search.journal import Journal
from tuneparts.tracking import store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker

_OF_TUNE = {*AUTO_RESULT_KEYS, "trial_id", "done", "experiment_tag", "should_checkpoint"}
_FOLDER = "tuneparts"
_LONGEST_REPR = 200
_LOG_BYTES = 20_000
"""How much of the end of a trial's error file is kept."""


@dataclass(frozen=True)
class _TuneCard(SearchCard):
    """What the parent run of a Tune experiment shows."""

    kind: ClassVar[str] = "tune"
    is_open: ClassVar[bool] = True
    names: dict[TrialId, str] = field(default_factory=dict)
    """Tune's own names of the trials."""

    def run_name(self, trial: TrialId) -> str:
        return self.names.get(trial, str(trial))

    def experiment_tags(self, experiment_id: str) -> dict[str, str]:  # noqa: ARG002
        return {}  # it may be someone else's experiment

    def search_note(self, experiment_id: str, run_id: str, answer: str | None) -> str:  # noqa: ARG002
        return answer or self.run.question

    def trial_note(self, experiment_id: str, parent: str, trial: TrialId) -> str:  # noqa: ARG002
        return f"Trial `{self.run_name(trial)}` of a Ray Tune experiment."


class MLflowObserver(tune.Callback):  # type: ignore[misc]
    """A Tune callback that logs params, metrics with their steps, and how trials end.

    Works with any trainable, function or class. Of what trials report, all numbers are logged, and
    nothing that Tune adds. A config that a population perturbs shows as metrics `config/...`. A
    trial that fails gets its traceback as an artifact. All of MLflow is called from the driver, so
    workers need neither its address nor its password.

    Example:
        >>> observer = MLflowObserver("my experiment", metric="loss", mode="min")
        >>> run_config = tune.RunConfig(callbacks=[observer])  # for `tune.Tuner(...)`
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        metric: str | None = None,
        mode: Literal["min", "max"] | None = None,
        tracking_uri: str | None = None,
        folder: Path | str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what to do; nothing is opened before the first trial.

        Args:
            experiment: Name of the MLflow experiment, made if it is not there; the trainable's
                name when not given.
            metric: The parent run shows the best of it, so that experiments rank in MLflow's list.
            mode: Which way the metric improves.
            tracking_uri: The store, a database or a server; that of the settings when not given.
            folder: Where the journal lies, on the driver's disk. When not given, in the folder of
                the Tune experiment, or among the results if that is not on this machine.
            tags: Tags of every run.

        Raises:
            ConfigError: The address is no store, or `metric` comes without `mode`.
        """
        if (metric is None) != (mode is None) or mode not in {None, "min", "max"}:
            raise ConfigError(
                "a metric improves towards `min` or `max`, and a mode is that of a metric, but got "
                f"`metric={metric!r}, mode={mode!r}`."
            )
        self._experiment = experiment
        self._metric = metric
        self._mode = mode
        self._uri = store.resolve(tracking_uri)
        self._folder = None if folder is None else Path(folder).expanduser().absolute()
        self._tags = dict(tags or {})
        self.parent_run_id: str | None = None
        """MLflow's run id of the experiment, once it has ended."""
        self._close()

    def _close(self) -> None:
        self._journal: Journal | None = None
        self._tracker: Tracker | None = None
        self._ids: dict[str, TrialId] = {}
        self._card: _TuneCard | None = None
        self._errors: dict[TrialId, Path] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles callbacks: journal and thread belong to the process that opened them."""
        plain = ("_experiment", "_metric", "_mode", "_uri", "_folder", "_tags")
        return {name: getattr(self, name) for name in plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.parent_run_id = None
        self._close()

    def on_trial_start(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Trial],  # noqa: ARG002
        trial: Trial,
        **info: Any,  # noqa: ARG002
    ) -> None:
        known, now = self._id(trial), time.time()
        told = {"trial_id": trial.trial_id, "trial_name": str(trial), **trial.config}
        self._tell(TrialRetried(known, now))  # news only if it had failed before
        self._tell(TrialStarted(known, _plain(told), now, passes=self._step(known)))
        self._tell(TrialRunning(known, now))

    def on_trial_result(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Trial],  # noqa: ARG002
        trial: Trial,
        result: dict[str, Any],
        **info: Any,  # noqa: ARG002
    ) -> None:
        step = int(result["training_iteration"])
        self._tell(Row(self._id(trial), step, _numbers(result), time.time()))

    def on_trial_complete(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Trial],  # noqa: ARG002
        trial: Trial,
        **info: Any,  # noqa: ARG002
    ) -> None:
        self._tell(TrialEnded(self._id(trial), "finished", time.time()))

    def on_trial_error(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Trial],  # noqa: ARG002
        trial: Trial,
        **info: Any,  # noqa: ARG002
    ) -> None:
        known = self._id(trial)
        if trial.error_file:
            self._errors[known] = Path(trial.error_file)
        said = self._log(known).strip().splitlines()
        message = redact(said[-1]) if said else "Tune gave no reason"
        self._tell(TrialEnded(known, "failed", time.time(), message))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:  # noqa: ARG002
        """Wait until MLflow has everything; a trial that did not end was killed."""
        if self._tracker is None or self._journal is None:
            return
        is_over = all(record.end is not None for record in self._journal.trials.values())
        self._tracker.close("FINISHED" if is_over else "KILLED")
        self.parent_run_id = self._tracker.parent_run_id
        self._journal.close()
        self._close()

    def _step(self, trial: TrialId) -> int:
        """The newest step of a trial."""
        assert self._journal is not None
        record = self._journal.trials.get(trial)
        return record.last.step if record is not None and record.last is not None else 0

    def _tell(self, event: Event) -> None:
        assert self._journal is not None
        assert self._tracker is not None
        if self._journal.append(event):
            self._tracker.on_event(event)

    def _id(self, trial: Trial) -> TrialId:
        """Our name of a trial; the first one opens journal and store."""
        if self._journal is None:
            self._open(trial)
        assert self._card is not None
        if trial.trial_id not in self._ids:
            arm = re.sub(r"[^a-z0-9_]", "_", trial.trainable_name.lower())
            arm = arm if re.match("[a-z]", arm) else f"t_{arm}"
            seed = trial.config.get("seed")
            made = TrialId(arm, seed if type(seed) is int else 0, len(self._ids))
            self._ids[trial.trial_id] = made
            self._card.names[made] = str(trial)
        return self._ids[trial.trial_id]

    def _open(self, trial: Trial) -> None:
        folder = self._folder or _folder_of(trial)
        self._journal = Journal(folder / "journal.jsonl")
        self._card = self._make_card(trial)
        for known, record in self._journal.trials.items():
            self._ids[str(record.config["trial_id"])] = known
            self._card.names[known] = str(record.config["trial_name"])
        self._tracker = Tracker(self._uri, folder=folder, search=self._card, read_log=self._log)

    def _make_card(self, trial: Trial) -> _TuneCard:
        experiment = self._experiment or trial.trainable_name
        metric = None
        if self._metric is not None:
            way = Direction.UP if self._mode == "max" else Direction.DOWN
            metric = Metric(self._metric, way, "", 4, "reported by trials")
        return _TuneCard(
            RunCard(
                experiment,
                question=f"Ray Tune experiment `{trial.storage.experiment_dir_name}`.",
                scale="tune",
                versions=provenance.versions(),
                command=redact(sys.argv[0] or "python"),
            ),
            resolved="",
            tags={"tune.experiment": trial.storage.experiment_dir_name, **self._tags},
            metric=metric,
            params={"trainable": trial.trainable_name, "metric": self._metric, "mode": self._mode},
            user=provenance.user(),
        )

    def _log(self, trial: TrialId) -> str:
        """The end of what Tune wrote down of a trial's failure."""
        path = self._errors.get(trial)
        if path is None or not path.exists():
            return ""
        return path.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")


def _folder_of(trial: Trial) -> Path:
    """The folder of the Tune experiment if this machine has it, else one among the results."""
    place, name = trial.storage.experiment_fs_path, trial.storage.experiment_dir_name
    if isinstance(trial.storage.storage_filesystem, pyarrow.fs.LocalFileSystem):
        return Path(place) / _FOLDER
    digest = hashlib.sha256(place.encode()).hexdigest()[:8]
    return settings.current().results_dir / "tune" / f"{name}-{digest}"


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """What a trial reported itself, flat; names as MLflow takes them."""
    own = {key: value for key, value in result.items() if key not in _OF_TUNE}
    found = {}
    for key, value in flatten_dict(own).items():
        number = value.item() if getattr(value, "ndim", None) == 0 else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            found[re.sub(r"[^\w.\- :/]", "_", key)] = float(number)
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no word for as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if getattr(value, "ndim", None) == 0:  # a number of numpy
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"{value!r:.{_LONGEST_REPR}}"
