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
_PLAIN = ("start", "answer", "store", "experiment", "position")


@dataclass
class Record:
    """The content of `tracking.json`.

    Two threads share it: they replace its values instead of changing them in place, and `save`
    writes one consistent content at a time.
    """

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
    store: str = ""
    """Which store the rest is about: its URI with masked password, MLflow's ids, and how many bytes
    of the journal have arrived there."""
    experiment: str | None = None
    parent: str | None = None
    trials: dict[TrialId, str] = field(default_factory=dict)
    position: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def remember(
        self, store: str, parent: str | None, trials: dict[TrialId, str], position: int
    ) -> None:
        """Save how far a store is: a trial whose id is on disk has begun before the position."""
        with self._lock:
            self.store, self.parent, self.trials, self.position = store, parent, trials, position
            self._write()

    def save(self) -> None:
        """Replace the file in one step; a power cut leaves the old one or the new one."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        redactor = redaction.of_process()
        content = {
            "key": self.key,
            "start": self.start,
            "ending": self.ending,
            "answer": None if self.answer is None else redactor.text(self.answer),
            "artifacts": self.artifacts,
            "tags": {str(trial): redactor.tree(tags) for trial, tags in self.tags.items()},
            "store": self.store,
            "experiment": self.experiment,
            "parent": self.parent,
            "position": self.position,
            "trials": {str(trial): run_id for trial, run_id in self.trials.items()},
        }
        atomic.write_text(self.folder / FILE, json.dumps(content, indent=1), fsync=True)


def create(folder: Path, start: float | None) -> Record:
    """Make, and write, the record of a run that was never tracked."""
    made = Record(folder, key=uuid.uuid4().hex, start=start)
    made.save()
    return made


def load(folder: Path) -> Record | None:
    """Read the record of a run folder; None when nothing was ever tracked from it.

    Raises:
        DataError: The file is damaged.
    """
    path = folder / FILE
    try:
        return _parse(folder, json.loads(atomic.inside(folder, path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). It maps trials to MLflow runs: restore it, or "
            "delete it and these runs, and resume."
        ) from None


def _parse(folder: Path, content: dict[str, Any]) -> Record:
    plain = {name: content[name] for name in _PLAIN if name in content}
    ending = content.get("ending")
    return Record(
        folder,
        key=content["key"],
        parent=content["parent"],
        trials={TrialId.parse(trial): run_id for trial, run_id in content["trials"].items()},
        tags={TrialId.parse(trial): tags for trial, tags in content.get("tags", {}).items()},
        ending=None if ending is None else tuple(ending),
        artifacts=tuple(content.get("artifacts", ())),
        **plain,
    )
