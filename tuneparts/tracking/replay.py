"""Replay a run's journal into MLflow: from a remembered position, as often as one likes.

`journal.jsonl` says what happened, MLflow shows it: a parent run for the search, a child run per
trial. Every call can be repeated without harm, so a process may be killed between any two of them,
and the store may lose an answer:

- A run carries the key of its folder and the name of its trial as tags. When it is not sure
  whether a run was created, it is looked for before it is created again.
- A point carries the step and the time of the journal's event, and MLflow ignores a point that it
  already has. A step that a former process sent with another time is left out.
- A trial is marked as ended last. One that is FINISHED or FAILED in the store is complete there,
  and costs no call any more.
"""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts.core import atomic
from tuneparts.core.errors import SecurityError
from tuneparts.core.redaction import redact
from tuneparts.search import events
from tuneparts.search.events import ReplicateStopped, TrialId
from tuneparts.search.state import RunState, TrialRecord
from tuneparts.tracking import card, record, store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.record import Status
from tuneparts.tracking.trial_run import STATUS, Tally, TrialRun, milliseconds

if TYPE_CHECKING:
    from mlflow import MlflowClient

_CHUNK = 2**20
"""Bytes of the journal that are read and sent at a time, so that memory does not grow with it."""
_SECONDS_BETWEEN_SAVES = 10.0
"""How old the position on disk may be; a crash sends so much again, which changes nothing."""


class Replay:
    """Brings one store up to date with one run folder.

    `advance` is called by one thread alone; `describe`, `tag_trial`, `log_artifact` and `end` by
    any. What they ask for is remembered on disk at once, and sent by the next `advance`.
    """

    def __init__(
        self,
        connect: Callable[[], "MlflowClient"],
        *,
        uri: str,
        folder: Path,
        card: SearchCard,
        start: float | None,
        on_progress: Callable[[int], None] = lambda _: None,
        read_log: Callable[[TrialId], str] = lambda _: "",
    ) -> None:
        """Prepare; no call is made before `advance`.

        A run that was never tracked began at `start`, or with its first event. `on_progress` gets
        how many bytes of the journal have arrived. A trial that failed gets `read_log` of it.
        """
        known = record.load(folder)
        self.record = known or record.create(folder, start)
        self.client = store.RedactingClient(connect)
        self.calls = store.Calls(self.client)
        self.created = 0
        """Runs that were created."""
        self.parent: str | None = None
        self.refusal: Exception | None = None
        """Why MLflow will never have anything of this run."""
        self._uri = uri
        self._card = card
        self._journal = folder / "journal.jsonl"
        self._on_progress = on_progress
        self._read_log = read_log
        self._in_doubt = known is not None
        """Whether the store may hold runs that we do not know of."""
        self._is_introduced = self._has_data = False
        self._old_params: set[str] = set()
        """Params that the parent run has from a former process."""
        self._experiment_id: str | None = None
        self._state = RunState(keep_rows=False)
        self._runs: dict[TrialId, TrialRun] = {}
        self._dirty: dict[TrialId, TrialRun] = {}
        self._offset = self._checked_position()
        """Bytes of the journal that were read; what they ask for may still be waiting."""
        self._last_time = self._start = self._find_start()
        """Time of the newest event that was read."""
        self._requests: deque[Callable[[], None]] = deque()
        self._ending: tuple[Status, float | None] | None = None
        self._sent_counts: dict[str, int] = {}
        self._tally = Tally(card.metric)
        self._saved_at = time.monotonic()

    # What may be asked for besides the journal, from any thread.

    def describe(self, answer: str) -> None:
        """Put the answer, in Markdown, into the description of the parent run."""
        self.record.answer = answer
        self.record.save()
        self._requests.append(partial(self._send_answer, answer))

    def tag_trial(self, trial: TrialId, tags: Mapping[str, str]) -> None:
        """Add tags to the run of a trial."""
        known = self.record.tags
        self.record.tags = {**known, trial: {**known.get(trial, {}), **tags}}
        self.record.save()
        self._requests.append(partial(self._send_tags, trial, tags))

    def log_artifact(self, path: Path) -> None:
        """Copy a file or folder to the parent run; one in the run's folder is remembered."""
        folder, root = self.record.folder.absolute(), path.parent
        if path.absolute().is_relative_to(folder):
            root = folder
            inner = str(path.absolute().relative_to(folder))
            self.record.artifacts = tuple(dict.fromkeys((*self.record.artifacts, inner)))
            self.record.save()
        self._requests.append(partial(self._send_artifact, path, root))

    def end(self, status: Status, time: float) -> None:
        """End the parent run, and all that still runs as KILLED."""
        self.record.ending = status, time
        self.record.save()
        self._ending = status, time

    def reopen(self) -> None:
        """Forget how a former process ended the run, which goes on."""
        if self.record.ending is not None:
            self.record.ending = None
            self.record.save()

    def start_over(self) -> None:
        """Replay from the first event, and ask again for all that was ever asked for.

        A run without an ending was interrupted: it ends as KILLED at its last event.
        """
        known, folder = self.record, self.record.folder
        self._offset = 0
        report = (card.REPORT,) if (folder / card.REPORT).is_dir() else ()
        for inner in dict.fromkeys((*known.artifacts, *report)):
            self._requests.append(partial(self._send_artifact, folder / inner, folder))
        for trial, tags in known.tags.items():
            self._requests.append(partial(self._send_tags, trial, tags))
        self._ending = known.ending or ("KILLED", None)

    def run_id(self, trial: TrialId) -> str | None:
        """MLflow's run id of a trial; None when the store has no run of it, or not yet."""
        run = self._runs.get(trial)
        return None if run is None else run.run_id

    # The replay itself.

    def advance(self) -> None:
        """Bring the store up to date; raises only what waiting can cure.

        After a failure the next call goes on where this one stopped.
        """
        ending = self._ending  # what is asked for from now on is for the next call
        if self.refusal is not None or not self._attach():
            self._requests.clear()
            return
        self._send_dirty()
        while self._read():
            self._send_dirty()
            self._tally.send(self.calls, str(self.parent))
            self._remember()
        if ending is not None:  # of the trials that still run; of the parent run when all is sent
            status, end = ending[0], self._last_time if ending[1] is None else ending[1]
            for run in self._runs.values():
                run.kill(end)
            self._dirty.update(self._runs)
            self._send_dirty()
        self._send_parent()
        if ending is not None:
            terminate = partial(self.client.set_terminated, self.parent, status)
            self.calls.make(lambda: terminate(end_time=milliseconds(end)))
            self._ending = None
        self._remember(is_over=ending is not None)

    def _read(self) -> bool:
        """Take the next whole lines of the journal; false when there are none."""
        try:
            with self._journal.open("rb") as file:
                file.seek(self._offset)
                content = file.read(_CHUNK)
                if b"\n" not in content:
                    content += file.readline()  # a line longer than a chunk
        except FileNotFoundError:
            return False
        # Half a line at the end is an event that is being written, or never was one.
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                self._take(line.decode("utf-8"))
            except Exception as error:  # one odd line must not end the replay
                self.calls.problems.add("event not understood", f"{line[:200]!r}: {error}")
        self._offset += len(whole)
        return bool(whole)

    def _take(self, line: str, *, is_sent: bool = False) -> None:
        """Add a line to the state of the search, and to what waits unless it was sent before."""
        event = events.decode(line)
        if event is None or not self._state.apply(event) or isinstance(event, ReplicateStopped):
            return  # the ends of a replicate's trials say what there is to show
        self._tally.take(event, self._state)
        run = self._run(event.trial)
        run.take(event, self.calls.problems, is_open=self._card.is_open, is_sent=is_sent)
        if not is_sent:
            self._dirty[event.trial] = run
            self._last_time = max(self._last_time, event.time)

    def _run(self, trial: TrialId) -> TrialRun:
        known = self._state.trials.setdefault(trial, TrialRecord())
        run = self._runs.setdefault(trial, TrialRun(trial, known))
        run.record = known
        return run

    def _remember(self, *, is_over: bool = False) -> None:
        """Remember that everything that was read is in the store."""
        ids = {trial: run.run_id for trial, run in self._runs.items() if run.run_id is not None}
        is_new = len(ids) != len(self.record.trials) or self.record.parent != self.parent
        if is_new or is_over or time.monotonic() - self._saved_at > _SECONDS_BETWEEN_SAVES:
            self.record.remember(redact(self._uri), self.parent, ids, self._offset)
            self._saved_at = time.monotonic()
        self._on_progress(self._offset)

    def _checked_position(self) -> int:
        """The remembered position, or 0 if the journal is not the one that it was measured in.

        A power cut can take the last lines of a journal that had already been sent.
        """
        position = self.record.position
        if position == 0 or not self._journal.exists():
            return 0
        with self._journal.open("rb") as file:
            file.seek(position - 1)
            return position if file.read(1) == b"\n" else 0

    # Parent run and survey.

    def _attach(self) -> bool:
        """Make sure of the parent run; false when MLflow will never have it."""
        if self.parent is not None and not self._in_doubt:
            return True
        try:
            self._experiment_id = self._experiment_id or self._experiment()
            if self._in_doubt:
                self._survey()
            if self.parent is None:
                self._in_doubt = True
                tags = self._card.parent_tags(self.record.key, self.record.folder)
                self.parent = self._created(tags, self.record.folder.name, self._start)
            self.record.experiment = self._experiment_id
            self._introduce(str(self.parent))
        except Exception as error:
            if store.is_curable(error):
                raise
            self.refusal = error
            self.calls.problems.add("nothing is tracked", f"{error}")
            return False
        self._in_doubt = False
        return True

    def _experiment(self) -> str:
        name, root = self._card.name, store.artifact_root(self._uri)
        found = self.client.get_experiment_by_name(name)
        if found is None:
            place = None if root is None else f"{root}/{name}"
            kind = {card.EXPERIMENT_KIND_TAG: "custom_model_development"}
            try:
                made = self.client.create_experiment(name, artifact_location=place, tags=kind)
                return str(made)
            except Exception:  # another search of that name may have been a moment faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _survey(self) -> None:
        """Learn which runs of this folder the store has, and read again what was sent before.

        The position is only good for a store that has all the runs which it was remembered with.
        """
        known = self.record
        for found in self._search():
            if card.PARENT_TAG not in found.data.tags:
                self.parent = str(found.info.run_id)
                self._old_params = set(found.data.params)
                if found.info.status != "RUNNING" and self._ending is None:
                    self.client.update_run(self.parent, status="RUNNING")
            else:
                self._adopt(found)
        is_same = known.store == redact(self._uri) and known.parent == self.parent is not None
        if not is_same or not known.trials.keys() <= self._runs.keys():
            self._offset = 0
        for trial in known.trials if self._offset > 0 else ():
            self._runs[trial].has_params = True
        self._tally, self._state = Tally(self._card.metric), RunState(keep_rows=False)
        if self._offset == 0:
            return
        with self._journal.open("rb") as file:
            while file.tell() < self._offset:
                line = file.readline().decode("utf-8", "replace")
                with suppress(Exception):  # a problem was noted when it was first read
                    self._take(line, is_sent=True)
        self._tally.points.clear()

    def _search(self, more: str = "") -> list[Any]:
        """The runs of this folder, the parent included."""
        query = f"tags.`{card.KEY_TAG}` = '{self.record.key}'{more}"
        return store.search(self.client, [self._experiment_id], query)

    def _adopt(self, found: Any) -> None:
        """Take over a run that is in the store."""
        tags, status = found.data.tags, found.info.status
        trial = TrialId.parse(tags[card.TRIAL_TAG])
        run = self._run(trial)
        if run.run_id is not None:
            return
        run.run_id, run.may_exist = str(found.info.run_id), False
        if status in STATUS.values():
            run.complete()
            run.stored_outcome = tags.get("outcome", str(status).lower())
            return
        run.old_metrics = set(found.data.metrics)
        if status == "KILLED" and self._ending is None:
            run.was_killed = True
            self._dirty[trial] = run

    def _find_start(self) -> float:
        """When the search began; the first event says so where nothing was tracked yet."""
        if self.record.start is None and self._journal.exists():
            for event in events.read(self._journal):
                return event.time
        return self.record.start or time.time()

    def _introduce(self, parent: str) -> None:
        """Say on the parent run what runs; a resumed search may run on newer versions."""
        if self._is_introduced:
            return
        known, experiment = self._card, str(self._experiment_id)
        tags = known.parent_tags(self.record.key, self.record.folder)
        tags[card.NOTE_TAG] = known.search_note(experiment, parent, self.record.answer)
        # Those of a run that was extended since stay as they were: MLflow changes no param.
        params = card.flatten(known.params)
        new = {key: text for key, text in params.items() if key not in self._old_params}
        self.calls.send(parent, new, tags, [])
        for key, text in known.experiment_tags(experiment).items():
            self.calls.make(partial(self.client.set_experiment_tag, experiment, key, text))
        for name, text in {"search.json": known.resolved, "metadata.json": known.metadata}.items():
            if text:
                self.calls.make(partial(self.client.log_text, parent, text, name))
        self._is_introduced = True

    # Trials.

    def _send_dirty(self) -> None:
        for trial, run in list(self._dirty.items()):
            is_open = run.has_begun and not run.is_complete
            if is_open and (run.run_id is not None or self._create(run)):
                run.send(self.calls, self._card.data, self._read_log)
                self.calls.made += 1
            del self._dirty[trial]

    def _create(self, run: TrialRun) -> bool:
        """Create the run of a trial; false when MLflow will never have it."""
        if run.may_exist:
            for found in self._search(f" and tags.`{card.TRIAL_TAG}` = '{run.trial}'"):
                self._adopt(found)
                return True
        parent, name = str(self.parent), self._card.run_name(run.trial)
        tags = self._card.trial_tags(self.record.key, parent, run.trial)
        tags[card.NOTE_TAG] = self._card.trial_note(str(self._experiment_id), parent, run.trial)
        run.may_exist = True
        try:
            run.run_id = self._created(tags, name, run.record.start or 0.0)
        except Exception as error:
            if store.is_curable(error):
                raise
            self.calls.problems.add(store.REFUSED, f"{name}: {error}", 1 + len(run.points))
            run.complete()
            return False
        run.may_exist = False
        return True

    def _created(self, tags: dict[str, str], name: str, start: float) -> str:
        at = milliseconds(start)
        made = self.client.create_run(self._experiment_id, start_time=at, tags=tags, run_name=name)
        self.calls.made += 1
        self.created += 1
        return str(made.info.run_id)

    # What is on the parent run, and what was asked for.

    def _send_parent(self) -> None:
        parent, data = str(self.parent), self._card.data
        counts = Counter(run.outcome for run in self._runs.values())
        if counts != self._sent_counts:
            text = json.dumps(counts, sort_keys=True)
            self.calls.make(lambda: self.client.set_tag(parent, card.COUNTS_TAG, text))
            self._sent_counts = dict(counts)
        has_begun = any(run.has_begun for run in self._runs.values())
        if data is not None and not self._has_data and has_begun:  # trials have read the data
            known = [data.as_input()]  # MLflow keeps one that it has already
            self.calls.make(lambda: self.client.log_inputs(parent, datasets=known))
            self._has_data = True
        while self._requests:
            self._requests[0]()
            self._requests.popleft()
            self.calls.made += 1

    def _send_answer(self, answer: str) -> None:
        note = self._card.search_note(str(self._experiment_id), str(self.parent), answer)
        self.calls.make(lambda: self.client.set_tag(self.parent, card.NOTE_TAG, note))

    def _send_tags(self, trial: TrialId, tags: Mapping[str, str]) -> None:
        run_id = self.run_id(trial)
        if run_id is None:
            self.calls.problems.add("tags without a run", f"the store has no run of {trial}")
        else:
            self.calls.send(run_id, {}, dict(tags), [])

    def _send_artifact(self, path: Path, root: Path) -> None:
        """Send a file, or those of a folder; what links lead to outside of `root` is left out."""
        below = (Path(at, name) for at, _, names in os.walk(path) for name in sorted(names))
        for file in below if path.is_dir() else [path]:
            folder = None if file == path else str(file.parent.relative_to(path.parent))
            with suppress(SecurityError):
                sent = str(atomic.inside(root, file))
                self.calls.make(partial(self.client.log_artifact, self.parent, sent, folder))
