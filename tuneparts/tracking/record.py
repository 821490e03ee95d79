"""What a run folder remembers of MLflow between two processes: the file `tracking.json`.

The key is on disk before the first MLflow run is created, and every MLflow run is tagged with it.
So a crash at any moment leaves either a file that knows the run, or a run that is found by the key.
"""

import json
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tuneparts.core import atomic, redaction
from tuneparts.core.errors import DataError
from tuneparts.search.events import TrialId

FILE = "tracking.json"
Status: TypeAlias = Literal["FINISHED", "FAILED", "KILLED"]
"""How an MLflow run ends."""
_PLAIN = ("key", "start", "ending", "answer", "artifacts", "experiment", "parent")


@dataclass
class Record:
    """The content of `tracking.json`; threads that share it replace values as a whole."""

    folder: Path
    key: str
    """Unique to the folder, also when two machines share a server and a folder name."""
    start: float | None = None
    """When the parent run began, in seconds since 1970."""
    ending: tuple[Status, float] | None = None
    """How and when the last process ended the search; None while one runs, or was killed."""
    answer: str | None = None
    """What the search found, in Markdown; it becomes the description of the parent run."""
    artifacts: tuple[str, ...] = ()
    """Files and folders for the parent run, relative to the run's folder."""
    tags: dict[TrialId, dict[str, str]] = field(default_factory=dict)
    """Tags that were added to trials after they ended."""
    experiment: str | None = None
    """MLflow's ids in the store that was written to last: this, `parent` and `trials`."""
    parent: str | None = None
    trials: dict[TrialId, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def save(self, **values: Any) -> None:
        with self._lock:
            vars(self).update(values)
            redactor = redaction.of_process()
            content = {name: getattr(self, name) for name in _PLAIN} | {
                "answer": None if self.answer is None else redactor.text(self.answer),
                "tags": {str(trial): redactor.tree(tags) for trial, tags in self.tags.items()},
                "trials": {str(trial): run_id for trial, run_id in self.trials.items()},
            }
            atomic.write_text(self.folder / FILE, json.dumps(content, indent=1), fsync=True)


def _create(folder: Path, start: float | None) -> Record:
    made = Record(folder, key=uuid.uuid4().hex, start=start)
    made.save()
    return made


def load(folder: Path) -> Record | None:
    """Read the record of a run folder; None when nothing was ever tracked from it."""
    path = folder / FILE
    try:
        found = json.loads(atomic.inside(folder, path).read_text(encoding="utf-8"))
        read = {name: found[name] for name in _PLAIN if name in found}
        for name in ("ending", "artifacts"):
            if read.get(name) is not None:
                read[name] = tuple(read[name])
        for name, by_trial in (("tags", found.get("tags", {})), ("trials", found["trials"])):
            read[name] = {TrialId.parse(trial): kept for trial, kept in by_trial.items()}
        return Record(folder, **read)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). It maps trials to MLflow runs: restore it, or "
            "delete it and these runs, and resume."
        ) from None
