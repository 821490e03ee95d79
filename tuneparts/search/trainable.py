"""The Ray Tune trainable: any learner, one interval per step. No training code."""

import os
import platform
import time
import traceback
from contextlib import suppress
from typing import Any

import torch
from ray import tune

from tuneparts import catalog
from tuneparts.config import parse
from tuneparts.data.task import Task
from tuneparts.errors import HangError, StorageError
from tuneparts.redaction import redact
from tuneparts.search.exhibits import Exhibits
from tuneparts.search.halt import is_full
from tuneparts.search.logs import TrialLog
from tuneparts.search.segment import Segment
from tuneparts.search.shelf import Shelf
from tuneparts.search.storage import Folder
from tuneparts.search.tasks import RayTasks
from tuneparts.search.watchdog import limit
from tuneparts.training.allocator import keep_freed_memory
from tuneparts.training.exhibits import Exhibitor
from tuneparts.training.learner import Context, available_device


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """Runs one segment; a worker process is reused for many.

    State is kept on our own shelf and not in Ray's checkpoints, so that a segment finds its
    newest state however it was interrupted: worker, node or driver. Ray only has to start it again.
    """

    def setup(self, config: dict[str, Any], **shared: Any) -> None:
        self._task: Task = shared["task"]
        self._folder = Folder(shared["storage"])
        self._shelf = Shelf(self._folder)
        self._exhibits = Exhibits(self._folder)
        self._score_test_always: bool = shared["score_test_always"]
        self._interval_limit: float = shared["interval_limit"]
        keep_freed_memory()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        torch.set_num_threads(max(1, int(config["cpus"])))
        self._segment = Segment.from_json(config["segment"])
        self._rows: list[dict[str, float]] = []
        self._seconds = 0.0
        self._learner: Any = None
        self._log: Any = None

    def step(self) -> dict[str, Any]:
        try:
            if self._log is None:
                self._log = TrialLog(self._folder, self._segment.trial)
            with self._log.listen():
                if self._learner is None:
                    self._build()
                if not self._over():
                    self._advance()
            self._log.keep()
        except OSError as error:
            if is_full(error):
                return {"rows": [], "halt": redact(str(error)), "done": True}
            self._log_failure()
            # Storage may come back: Ray starts the segment again. It logs what it is given.
            raise StorageError(redact(f"{type(error).__name__}: {error}")) from None
        except Exception as error:  # the same config would fail the same way: no second try
            failure = redact(f"{type(error).__name__}: {error}")
            self._log_failure()
            return {"rows": self._rows, "failure": failure, "done": True}
        rows, self._rows = self._rows, []
        return {"rows": rows, "finished": self._learner.finished, "done": self._over()}

    def _log_failure(self) -> None:
        if self._log is not None:
            with suppress(OSError):
                self._log.add(traceback.format_exc())
                self._log.keep()

    def _build(self) -> None:
        segment = self._segment
        config = parse(catalog.config_class(segment.config["method"]), segment.config)
        self._learner = config.build(
            Context(
                task=self._task,
                seed=segment.trial.seed,
                device=available_device(),
                score_test_always=self._score_test_always,
                tasks=RayTasks(),
            )
        )
        found = self._shelf.find(segment)
        if found is not None:
            self._learner.load_state_dict(found.state["learner"])
        if found is not None and found.same_round:
            self._seconds = found.state["seconds"]
            self._rows = found.state["rows"]
        self._history = list(self._rows)
        self._log.add(
            f"{segment.config['method']} from {self._learner.passes} to {segment.until} passes on "
            f"{platform.node()}, process {os.getpid()}, {available_device()}, "
            f"threads: {torch.get_num_threads()}"
        )
        self._log.keep()  # a worker that dies at once has said where it ran

    def _advance(self) -> None:
        segment, passes = self._segment, self._learner.passes
        if self._shelf.has_hung(segment, passes):
            raise HangError(
                f"an interval ends within {self._interval_limit:g} s, but the one after {passes} "
                "passes did not. Set TUNEPARTS_INTERVAL_LIMIT if it needs longer."
            )
        start = time.perf_counter()
        with limit(self._interval_limit, lambda: self._shelf.note_hang(segment, passes)):
            metrics = dict(self._learner.advance())
        self._seconds += time.perf_counter() - start
        row = {**metrics, "cost/seconds": self._seconds}
        self._history.append(row)
        self._rows.append(row)
        if self._learner.finished and isinstance(self._learner, Exhibitor):
            self._exhibits.put(self._segment.trial, self._learner.exhibits())
        state = {
            "learner": self._learner.state_dict(),
            "seconds": self._seconds,
            "rows": self._history,
        }
        self._shelf.put(self._segment, self._learner.passes, state, last=self._over())

    def _over(self) -> bool:
        return bool(self._learner.finished or self._learner.passes >= self._segment.until)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the shelf has it."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: `_build` asks the shelf."""
