"""Logs any Ray Tune experiment to MLflow: one parent run, one nested run per trial.

Ray's own `MLflowLoggerCallback` makes one flat run per trial and calls MLflow for each metric from
Tune's event loop. This one writes a journal on the driver's disk, and a thread replays it to MLflow
in batches. So training never waits for the store, a store that is away misses nothing, and after
`Tuner.restore` the same runs go on: none is doubled.
"""

import hashlib
import json
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
from tuneparts.search import events
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
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

    Of what trials report, all numbers are logged, and nothing that Tune adds. A config that a
    population perturbs shows as metrics `config/...`. A trial that fails gets its traceback as an
    artifact. MLflow is called from the driver alone: workers need neither address nor password.

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
        self._experiment, self._metric, self._mode = experiment, metric, mode
        self._uri = store.resolve(tracking_uri)
        self._folder = None if folder is None else Path(folder).expanduser().absolute()
        self._tags = dict(tags or {})
        self._open: _Open | None = None
        self.parent_run_id: str | None = None
        """MLflow's run id of the experiment, once it has ended."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles callbacks: journal and thread belong to the process that opened them."""
        return {**vars(self), "_open": None, "parent_run_id": None}

    # Tune calls these by keywords.

    def on_trial_start(self, *, trial: Trial, **_: Any) -> None:
        opened = self._opened(trial)
        known, now = opened.id_of(trial), time.time()
        told = {"trial_id": trial.trial_id, "trial_name": str(trial), **trial.config}
        record = opened.journal.trials.get(known)
        step = record.last.step if record is not None and record.last is not None else 0
        opened.tell(events.TrialRetried(known, now))  # news only if it had failed before
        opened.tell(events.TrialStarted(known, _plain(told), now, steps=step))
        opened.tell(events.TrialRunning(known, now))

    def on_trial_result(self, *, trial: Trial, result: dict[str, Any], **_: Any) -> None:
        opened, step = self._opened(trial), int(result["training_iteration"])
        opened.tell(events.Row(opened.id_of(trial), step, _numbers(result), time.time()))

    def on_trial_complete(self, *, trial: Trial, **_: Any) -> None:
        opened = self._opened(trial)
        opened.tell(events.TrialEnded(opened.id_of(trial), "finished", time.time()))

    def on_trial_error(self, *, trial: Trial, **_: Any) -> None:
        opened = self._opened(trial)
        known = opened.id_of(trial)
        if trial.error_file:
            opened.errors[known] = Path(trial.error_file)
        said = opened.log_of(known).strip().splitlines()
        message = redact(said[-1]) if said else "Tune gave no reason"
        opened.tell(events.TrialEnded(known, "failed", time.time(), message))

    def on_experiment_end(self, **_: Any) -> None:
        """Wait until MLflow has everything; a trial that did not end was killed."""
        if self._open is None:
            return
        journal, tracker = self._open.journal, self._open.tracker
        is_over = all(record.end is not None for record in journal.trials.values())
        tracker.close("FINISHED" if is_over else "KILLED")
        self.parent_run_id = tracker.parent_run_id
        journal.close()
        self._open = None

    def _opened(self, trial: Trial) -> "_Open":
        """The journal and the store; the first trial opens them."""
        if self._open is None:
            metric, name = None, trial.storage.experiment_dir_name
            if self._metric is not None:
                way = Direction.UP if self._mode == "max" else Direction.DOWN
                metric = Metric(self._metric, way, "", 4, "reported by trials")
            params = {"metric": self._metric, "mode": self._mode}
            card = _TuneCard(
                RunCard(
                    self._experiment or trial.trainable_name,
                    question=f"Ray Tune experiment `{name}`.",
                    scale="tune",
                    versions=provenance.versions(),
                    command=redact(sys.argv[0] or "python"),
                ),
                resolved="",
                tags={"tune.experiment": name, **self._tags},
                metric=metric,
                params={"trainable": trial.trainable_name, **params},
                user=provenance.user(),
            )
            self._open = _Open(self._uri, self._folder or _folder_of(trial), card)
        return self._open


class _Open:
    """The journal of an experiment, the thread that tracks it, and our names of its trials."""

    def __init__(self, uri: str, folder: Path, card: _TuneCard) -> None:
        self.journal = Journal(folder / "journal.jsonl")
        self.errors: dict[TrialId, Path] = {}
        self._card = card
        self._ids: dict[str, TrialId] = {}
        for known, record in self.journal.trials.items():
            self._ids[str(record.config["trial_id"])] = known
            card.names[known] = str(record.config["trial_name"])
        self.tracker = Tracker(uri, folder=folder, search=card, read_log=self.log_of)

    def tell(self, event: events.Event) -> None:
        if self.journal.append(event):
            self.tracker.on_event(event)

    def id_of(self, trial: Trial) -> TrialId:
        if trial.trial_id not in self._ids:
            arm = re.sub(r"[^a-z0-9_]", "_", trial.trainable_name.lower())
            arm = arm if re.match("[a-z]", arm) else f"t_{arm}"
            seed = trial.config.get("seed")
            made = TrialId(arm, seed if type(seed) is int else 0, len(self._ids))
            self._ids[trial.trial_id] = made
            self._card.names[made] = str(trial)
        return self._ids[trial.trial_id]

    def log_of(self, trial: TrialId) -> str:
        """The end of what Tune wrote down of a trial's failure."""
        path = self.errors.get(trial)
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

    def convert(item: Any) -> Any:
        is_number = getattr(item, "ndim", None) == 0  # of numpy
        return item.item() if is_number else f"{item!r:.{_LONGEST_REPR}}"

    text = json.dumps(value, default=convert)
    return json.loads(text, parse_constant=lambda constant: str(float(constant)))
