"""The calls that make the store hold what the journal says.

Every step can be repeated: a run is looked for by its key before it is created a second time,
points carry step and time of the journal's event (MLflow ignores a point it already has), and a
trial is marked as ended last, so one that is FINISHED or FAILED in the store is complete.
"""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tuneparts.journal import TrialId
from tuneparts.tracking import history, notes, store
from tuneparts.tracking.card import (
    COUNTS_TAG,
    KEY_TAG,
    KIND_OF_EXPERIMENT_TAG,
    KIND_TAG,
    NOTE_TAG,
    TRIAL_TAG,
    SearchCard,
)
from tuneparts.tracking.items import Answer, Artifact, Closing, Item, Tags
from tuneparts.tracking.pending import PendingRun, milliseconds
from tuneparts.tracking.problems import Problems, curable, is_gone
from tuneparts.tracking.runmap import RunMap

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from tuneparts.tracking.discreet import DiscreetClient

Entry: TypeAlias = Any
"""An MLflow Metric, Param or RunTag."""

_COMPLETE = {"FINISHED", "FAILED"}
_REFUSED = "not taken by MLflow"
_MOST_PARAMS = 100
_MOST_ENTRIES = 1000


class Mirror:
    """The sink of the tracking writer. Used by one thread alone."""

    def __init__(
        self,
        client: "MlflowClient | DiscreetClient",
        *,
        uri: str,
        folder: Path,
        card: SearchCard,
        run_map: RunMap,
        start: float,
        is_resumed: bool,
    ) -> None:
        self.sent = 0
        self.calls = 0
        self.problems = Problems()
        self.parent: str | None = None
        self._client = client
        self._uri = uri
        self._folder = folder
        self._card = card
        self._map = run_map
        self._start = start
        self._in_doubt = is_resumed
        """Whether the store may hold runs that we do not know of."""
        self._is_refused = False
        self._is_introduced = False
        self._experiment_id: str | None = None
        self._runs: dict[TrialId, PendingRun] = {}
        self._dirty: dict[TrialId, PendingRun] = {}
        self._artifacts: list[Path] = []
        self._tagged: list[Tags] = []
        self._answer: Answer | None = None
        self._closing: Closing | None = None
        self._sent_counts: dict[str, int] = {}

    def take(self, item: Item) -> None:
        """Fold an item into what is pending."""
        if isinstance(item, Artifact):
            self._artifacts.append(item.path)
        elif isinstance(item, Tags):
            self._tagged.append(item)
        elif isinstance(item, Answer):
            self._answer = item
        elif isinstance(item, Closing):
            self._closing = item
            for run in self._runs.values():
                run.kill(item.time)
            self._dirty.update(self._runs)
        else:
            try:
                run = self._runs.setdefault(item.trial, PendingRun(item.trial, item.time))
                self._dirty[item.trial] = run
                run.fold(item, self.problems)
            except Exception as error:  # one odd event must not end the thread
                self.problems.add("event not understood", f"{item}: {error!r}")

    def send(self) -> None:
        """Send what is pending; raises only what waiting can cure."""
        if self._is_refused or not self._attach():
            self._dirty.clear()
            return
        num_known = len(self._map.trials)
        try:
            for trial, run in list(self._dirty.items()):
                self._send_run(run)
                del self._dirty[trial]
        finally:
            if len(self._map.trials) != num_known:
                self._map.save(self._folder)
        self._send_parent()

    def _attach(self) -> bool:
        """Make sure of the parent run; false when MLflow will never have it."""
        if self.parent is not None and not self._in_doubt:
            return True
        try:
            self._experiment_id = self._experiment_id or self._experiment()
            if self._in_doubt:
                self._survey()
            if self.parent is None:
                self._create_parent()
            self._introduce(str(self.parent))
        except Exception as error:
            if curable(error):
                raise
            self._is_refused = True
            self.problems.add("nothing is tracked", f"{error}")
            return False
        self._in_doubt = False
        self._map.parent = self.parent
        self._map.save(self._folder)
        return True

    def _experiment(self) -> str:
        name = self._card.name
        found = self._client.get_experiment_by_name(name)
        if found is None:
            root = store.artifact_root(self._uri)
            place = None if root is None else f"{root}/{name}"
            try:
                kind = {KIND_OF_EXPERIMENT_TAG: "custom_model_development"}
                made = self._client.create_experiment(name, artifact_location=place, tags=kind)
                return str(made)
            except Exception:
                # Another search of that name may have been a moment faster.
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _create_parent(self) -> None:
        self._in_doubt = True
        run = self._client.create_run(
            self._experiment_id,
            start_time=milliseconds(self._start),
            tags=self._card.parent_tags(self._map.key, self._folder),
            run_name=self._folder.name,
        )
        self.parent = str(run.info.run_id)

    def _introduce(self, parent: str) -> None:
        """Say on the parent run what runs; a resumed search may run on newer versions."""
        if self._is_introduced:
            return
        card, experiment = self._card, str(self._experiment_id)
        tags = card.parent_tags(self._map.key, self._folder)
        tags[NOTE_TAG] = notes.of_search(card, experiment, parent, None)
        self._send_entries(parent, _tags(tags))
        for key, text in {
            NOTE_TAG: notes.of_experiment(card, experiment),
            notes.VIEW_TAG: notes.view_state(),
        }.items():
            self._call(partial(self._client.set_experiment_tag, experiment, key, text))
        for name, text in {"search.json": card.resolved, "metadata.json": card.metadata}.items():
            if text:
                self._call(partial(self._client.log_text, parent, text, name))
        self._send_data(parent)
        self._is_introduced = True

    def _send_data(self, run_id: str) -> None:
        """Log the data set as an input; MLflow keeps one that it has already."""
        data = self._card.data
        if data is not None:
            self._call(lambda: self._client.log_inputs(run_id, datasets=[data.as_input()]))

    def _survey(self) -> None:
        """Learn which runs of this folder the store already has, and their points."""
        unfinished: dict[str, set[str]] = {}
        run_of: dict[str, PendingRun] = {}
        for found in store.search(
            self._client, [self._experiment_id], f"tags.`{KEY_TAG}` = '{self._map.key}'"
        ):
            run_id, tags, status = str(found.info.run_id), found.data.tags, found.info.status
            if tags[KIND_TAG] == "search":
                self.parent = run_id
                if status != "RUNNING":
                    self._client.update_run(run_id, status="RUNNING")
                continue
            trial = TrialId.parse(tags[TRIAL_TAG])
            start = found.info.start_time / 1000
            run = self._runs.setdefault(trial, PendingRun(trial, start))
            if run.run_id is not None:
                continue
            run.run_id = self._map.trials[trial] = run_id
            run.was_killed = status == "KILLED"
            if status in _COMPLETE:
                run.outcome = tags.get("outcome", str(status).lower())
                run.complete()
            else:
                unfinished[run_id] = set(found.data.metrics)
                run_of[run_id] = run
        for run_id, name, step, _, _ in history.points(self._uri, unfinished):
            run_of[run_id].stored.add((name, step))

    def _send_run(self, run: PendingRun) -> None:
        if run.is_complete or not (run.run_id or self._create(run)):
            return
        run_id = str(run.run_id)
        if run.was_killed and run.end is None:
            self._call(lambda: self._client.update_run(run_id, status="RUNNING"))
            run.was_killed = False
        if not run.has_data:
            self._send_data(run_id)
            run.has_data = True
        self._send_waiting(run, run_id)
        if run.end is not None:
            status, end = run.end[0], milliseconds(run.end[1])
            self._call(lambda: self._client.set_terminated(run_id, status, end_time=end))
            run.complete()

    def _create(self, run: PendingRun) -> bool:
        """Create the run of a trial; false when MLflow will never have it."""
        parent, experiment = str(self.parent), str(self._experiment_id)
        tags = self._card.trial_tags(self._map.key, parent, run.trial)
        tags[NOTE_TAG] = notes.of_trial(self._card, experiment, parent, run.trial)
        start, name = milliseconds(run.start), str(run.trial)
        self._in_doubt = True
        try:
            made = self._client.create_run(
                self._experiment_id, start_time=start, tags=tags, run_name=name
            )
        except Exception as error:
            if curable(error):
                raise
            self.problems.add(_REFUSED, f"{name}: {error}", 1 + len(run.points))
            run.complete()
            return False
        self._in_doubt = False
        self.calls += 1
        run.run_id = self._map.trials[run.trial] = str(made.info.run_id)
        return True

    def _send_waiting(self, run: PendingRun, run_id: str) -> None:
        """Params first, then points, in as few batches as MLflow allows; tags with the last."""
        from mlflow.entities import Metric

        if run.stored:
            run.points = [point for point in run.points if (point[0], point[3]) not in run.stored]
        while run.params or run.tags or run.points:
            params = dict(list(run.params.items())[:_MOST_PARAMS])
            few = _params(params) + _tags(run.tags)
            points = run.points[: _MOST_ENTRIES - len(few)]
            self._send_entries(run_id, [*few, *(Metric(*point) for point in points)])
            for key in params:
                del run.params[key]
            run.tags.clear()
            del run.points[: len(points)]
            self.sent += len(points)

    def _send_entries(self, run_id: str, entries: list[Entry]) -> None:
        """One batch; when MLflow refuses it for good, only the entries at fault are left out."""
        if not entries:
            return
        kinds: dict[str, list[Entry]] = {"Metric": [], "Param": [], "RunTag": []}
        for entry in entries:
            kinds[type(entry).__name__].append(entry)
        try:
            self._client.log_batch(run_id, *kinds.values())
            self.calls += 1
        except Exception as error:
            if curable(error):
                raise
            if is_gone(error) or len(entries) == 1:
                self.problems.add(_REFUSED, f"{error}", len(entries))
                return
            half = len(entries) // 2
            self._send_entries(run_id, entries[:half])
            self._send_entries(run_id, entries[half:])

    def _send_parent(self) -> None:
        parent = self.parent
        counts = Counter(run.outcome for run in self._runs.values())
        if counts != self._sent_counts:
            text = json.dumps(counts)
            self._call(lambda: self._client.set_tag(parent, COUNTS_TAG, text))
            self._sent_counts = dict(counts)
        if self._answer is not None:
            note = notes.of_search(
                self._card, str(self._experiment_id), str(parent), self._answer.text
            )
            self._call(lambda: self._client.set_tag(parent, NOTE_TAG, note))
            self._answer = None
        while self._tagged:
            self._send_entries(self._tagged[0].run_id, _tags(dict(self._tagged[0].tags)))
            del self._tagged[0]
        while self._artifacts:
            path = self._artifacts[0]
            is_folder = path.is_dir()
            log = self._client.log_artifacts if is_folder else self._client.log_artifact
            place = path.name if is_folder else None
            self._call(lambda: log(parent, str(path), place))  # noqa: B023 - called at once
            del self._artifacts[0]
        if self._closing is not None:
            status, end = self._closing.status, milliseconds(self._closing.time)
            self._call(lambda: self._client.set_terminated(parent, status, end_time=end))
            self._closing = None

    def _call(self, call: Callable[[], Any]) -> None:
        """Make a call that can be repeated; raises only what waiting can cure."""
        try:
            call()
            self.calls += 1
        except Exception as error:
            if curable(error):
                raise
            self.problems.add(_REFUSED, f"{error}")


def _params(values: dict[str, str]) -> list[Entry]:
    from mlflow.entities import Param

    return [Param(key, value) for key, value in values.items()]


def _tags(values: dict[str, str]) -> list[Entry]:
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in values.items()]
