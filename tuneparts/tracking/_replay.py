"""Replay a run's journal into MLflow, as often as one likes.

Every call can be repeated without harm, so a process may be killed between any two of them, and the
store may lose an answer:

- A run carries the key of its folder and the name of its trial as tags. When it is not sure
  whether a run was created, it is looked for before it is created again.
- A point carries the step and the time of the journal's event, and MLflow ignores one that it has.
- A trial is marked as ended last. One that has ended in the store as in the journal is complete.
"""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tuneparts.core import atomic
from tuneparts.core.errors import SecurityError
from tuneparts.search import events
from tuneparts.search.events import ReplicateStopped, TrialId
from tuneparts.search.state import RunState, TrialRecord
from tuneparts.tracking import card, record, store
from tuneparts.tracking._trial_run import ParentRun, TrialRun, milliseconds
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.record import Status

_CHUNK = 2**20
"""Bytes of the journal that are read and sent at a time, so that memory does not grow with it."""


class Replay:
    """Brings one store up to date with one run folder.

    `advance` is called by one thread alone. Others may call the rest, which is remembered on disk
    at once and sent by the next `advance`. A run that was never tracked began at `start`, or with
    its first event. `on_progress` gets how many bytes of the journal have arrived.
    """

    def __init__(
        self, uri: str, *, folder: Path, card: SearchCard, start: float | None,
        on_progress: Callable[[int], None] = lambda _: None,
        read_log: Callable[[TrialId], str] = lambda _: "",
    ) -> None:  # fmt: skip
        self.record = record.load(folder) or record._create(folder, start)
        self.client = store._RedactingClient(uri)
        self.calls = store._Calls(self.client)
        self.created = 0
        self.refusal: Exception | None = None
        """Why MLflow will never have anything of this run."""
        self._uri = uri
        self._card = card
        self._journal = folder / "journal.jsonl"
        self._on_progress = on_progress
        self._read_log = read_log
        self._is_sure = False  # whether all runs that the store has of this folder are known
        self._is_introduced = self._has_data = False
        self._sent_counts = ""
        self._experiment_id: str | None = None
        self._state = RunState(keep_rows=False)
        self._parent = ParentRun(metric=card.metric)
        self._runs: dict[TrialId, TrialRun] = {}
        self._dirty: dict[TrialId, TrialRun] = {}
        self._offset = 0  # bytes of the journal that were read
        self._requests: deque[Callable[[], None]] = deque()
        self._ending: tuple[Status, float | None] | None = None
        first = events.read(self._journal) if self._journal.exists() else ()
        self._start = self.record.start or next((event.time for event in first), time.time())
        self._last_time = self._start

    def describe(self, answer: str) -> None:
        """Put the answer, in Markdown, into the description of the parent run."""
        self._ask(self._set_note, answer=answer)

    def tag_trial(self, trial: TrialId, tags: Mapping[str, str]) -> None:
        """Add tags to the run of a trial that is in the journal."""
        known = self.record.tags
        all_tags = {**known, trial: {**known.get(trial, {}), **tags}}
        self._ask(partial(self._send_tags, trial, tags), tags=all_tags)

    def log_artifact(self, path: Path) -> None:
        """Copy a file or folder to the parent run; it must stay in place until it is sent."""
        folder, root, known = self.record.folder.absolute(), path.parent, self.record.artifacts
        if path.absolute().is_relative_to(folder):
            root = folder
            known = tuple(dict.fromkeys((*known, str(path.absolute().relative_to(folder)))))
        self._ask(partial(self._send_artifact, path, root), artifacts=known)

    def _ask(self, request: Callable[[], None], **record: Any) -> None:
        self.record.save(**record)
        self._requests.append(request)

    def end(self, status: Status, time: float) -> None:
        """End the parent run, and all that still runs as KILLED."""
        self.record.save(ending=(status, time))
        self._ending = status, time

    def finish_as_recorded(self) -> None:
        """Ask again for all that was asked for; without an ending the run was interrupted."""
        known, folder = self.record, self.record.folder
        report = (card.REPORT,) if (folder / card.REPORT).is_dir() else ()
        files = [folder / inner for inner in dict.fromkeys((*known.artifacts, *report))]
        self._requests.extend(partial(self._send_artifact, file, folder) for file in files)
        self._requests.extend(partial(self._send_tags, *pair) for pair in known.tags.items())
        self._ending = known.ending or ("KILLED", None)

    def run_id(self, trial: TrialId) -> str | None:
        """MLflow's run id of a trial; None when the store has no run of it, or not yet."""
        run = self._runs.get(trial)
        return None if run is None else run.run_id

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's run id of the search; None until the store has answered once."""
        return self._parent.run_id

    def advance(self) -> None:
        ending = self._ending  # what is asked for from now on is for the next call
        if self.refusal is not None or not self._attach():
            self._requests.clear()
            return
        self._send_dirty()
        while self._read():
            self._send_dirty()
            self._parent.flush(self.calls)
            self._remember()
            self._on_progress(self._offset)
        if ending is not None:  # of the trials that still run; of the parent run when all is sent
            status, end = ending[0], self._last_time if ending[1] is None else ending[1]
            self._dirty.update(self._runs)
            self._send_dirty(killed=end)
        self._send_parent()
        if ending is not None:
            at = milliseconds(end)
            self.calls.make(self.client.set_terminated, self.parent_run_id, status, end_time=at)
            self._ending = None
        self._remember()

    def _read(self) -> bool:
        if not self._journal.exists():
            return False
        with self._journal.open("rb") as file:
            file.seek(self._offset)
            content = file.read(_CHUNK) + file.readline()
        # Half a line at the end is an event that is being written, or never was one.
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                self._take(line.decode("utf-8"))
            except Exception as error:  # one odd line must not end the replay
                self.calls.problems.add("event not understood", f"{line[:200]!r}: {error}")
        self._offset += len(whole)
        return bool(whole)

    def _take(self, line: str) -> None:
        """Add a line to the state of the search, and to what waits."""
        event = events.decode(line)
        if event is None or not self._state.apply(event) or isinstance(event, ReplicateStopped):
            return  # the ends of the seed's trials say what there is to show
        self._parent.take(event, self._state)
        run = self._dirty[event.trial] = self._run(event.trial)
        run.take(event, self.calls.problems, is_open=self._card.is_open)
        self._last_time = max(self._last_time, event.time)

    def _run(self, trial: TrialId) -> TrialRun:
        known = self._state.trials.setdefault(trial, TrialRecord())
        return self._runs.setdefault(trial, TrialRun(trial=trial, record=known))

    def _remember(self) -> None:
        ids = {trial: run.run_id for trial, run in self._runs.items() if run.run_id is not None}
        if len(ids) != len(self.record.trials) or self.record.parent != self.parent_run_id:
            self.record.save(experiment=self._experiment_id, parent=self.parent_run_id, trials=ids)

    def _attach(self) -> bool:
        """Make sure of the parent run; false when MLflow will never have it."""
        try:
            if not self._is_sure:
                self._survey()
            if not self._is_introduced:
                self._introduce()
        except Exception as error:
            if store._is_retryable(error):
                raise
            self.refusal = error
            self.calls.problems.add("nothing is tracked", f"{error}")
            return False
        return True

    def _survey(self) -> None:
        """Learn which runs of this folder the store has, and make its parent run."""
        self._experiment_id = self._experiment_id or self._experiment()
        query = f"tags.`{card.KEY_TAG}` = '{self.record.key}'"
        for found in store._search(self.client, [self._experiment_id], query):
            trial = found.data.tags.get(card.TRIAL_TAG)
            run = self._parent if trial is None else self._run(TrialId.parse(trial))
            if run.run_id is None:
                run.adopt(found)
            is_over = found.info.status == "KILLED" or trial is None
            if is_over and found.info.status != "RUNNING" and self._ending is None:
                self.client.update_run(run.run_id, status="RUNNING")
        if self._parent.run_id is None:
            tags = self._card.parent_tags(self.record.key, self.record.folder)
            self._parent.run_id = self._created(tags, self.record.folder.name, self._start)
        self._is_sure = True

    def _experiment(self) -> str:
        name, root = self._card.name, store._artifact_root(self._uri)
        found = self.client.get_experiment_by_name(name)
        if found is None:
            place = None if root is None else f"{root}/{name}"
            tags = {card.EXPERIMENT_KIND_TAG: "custom_model_development"}
            try:
                made = self.client.create_experiment(name, artifact_location=place, tags=tags)
                return str(made)
            except Exception:  # another search of that name may have been a moment faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _introduce(self) -> None:
        """Say on the parent run what runs; a resumed search may run on newer versions."""
        known, parent, experiment = self._card, self._parent, str(self._experiment_id)
        parent.tags |= known.parent_tags(self.record.key, self.record.folder)
        parent.params |= card._flatten(known.params)
        self._set_note()
        for key, text in known.experiment_tags(experiment).items():
            self.calls.make(self.client.set_experiment_tag, experiment, key, text)
        for name, text in {"search.json": known.resolved, "metadata.json": known.metadata}.items():
            if text:
                self.calls.make(self.client.log_text, parent.run_id, text, name)
        self._is_introduced = True

    def _created(self, tags: dict[str, str], name: str, start: float) -> str:
        self._is_sure = False  # until the answer is there
        options = {"start_time": milliseconds(start), "tags": tags, "run_name": name}
        made = self.client.create_run(self._experiment_id, **options)
        self._is_sure = True
        self.calls.made += 1
        self.created += 1
        return str(made.info.run_id)

    def _send_dirty(self, killed: float | None = None) -> None:
        for trial, run in list(self._dirty.items()):
            if run.is_complete(killed):
                for waiting in (run.params, run.tags, run.points):
                    waiting.clear()
            elif run.has_begun:
                if run.run_id is None:
                    self._create(run)
                if not run.is_refused:
                    run.send(self.calls, self._card.data, self._read_log, killed)
                    self.calls.made += 1
            del self._dirty[trial]

    def _create(self, run: TrialRun) -> None:
        parent, name = str(self.parent_run_id), self._card.run_name(run.trial)
        tags = self._card.trial_tags(self.record.key, parent, run.trial)
        tags[card.NOTE_TAG] = self._card.trial_note(str(self._experiment_id), parent, run.trial)
        try:
            run.run_id = self._created(tags, name, run.record.start or 0.0)
        except Exception as error:
            if store._is_retryable(error):
                raise
            self.calls.problems.add(store.REFUSED, f"{name}: {error}", 1 + len(run.points))
            run.is_refused = True

    def _send_parent(self) -> None:
        parent, data = self._parent, self._card.data
        counts = json.dumps(Counter(r.outcome for r in self._runs.values()), sort_keys=True)
        if counts != self._sent_counts:
            self.calls.make(self.client.set_tag, parent.run_id, card.COUNTS_TAG, counts)
            self._sent_counts = counts
        has_begun = any(run.has_begun for run in self._runs.values())
        if data is not None and not self._has_data and has_begun:  # trials have read the data
            self.calls.make(self.client.log_inputs, parent.run_id, datasets=[data.as_input()])
            self._has_data = True
        while self._requests:
            self._requests[0]()
            self._requests.popleft()
            self.calls.made += 1
        parent.flush(self.calls)

    def _set_note(self) -> None:
        ids = str(self._experiment_id), str(self.parent_run_id)
        self._parent.tags[card.NOTE_TAG] = self._card.search_note(*ids, self.record.answer)

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
                self.calls.make(self.client.log_artifact, self.parent_run_id, sent, folder)
