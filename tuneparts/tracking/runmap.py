"""Which MLflow run mirrors which trial: `tracking.json` in the folder of a run.

The key is written before the first run is created and every run is tagged with it. So a crash
at any moment leaves either a map that knows the run or a run that can be found by the key.
"""

import json
import os
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tuneparts.errors import DataError
from tuneparts.journal import TrialId

FILE = "tracking.json"


@dataclass
class RunMap:
    """The MLflow runs of one run folder."""

    key: str
    """Unique to the folder, also when two machines share a server and a folder name."""
    parent: str | None = None
    """Run id of the parent run."""
    trials: dict[TrialId, str] = field(default_factory=dict)
    """Run ids of the trials."""

    def save(self, folder: Path) -> None:
        """Replace the file in one step."""
        content = {
            "key": self.key,
            "parent": self.parent,
            "trials": {str(trial): run_id for trial, run_id in self.trials.items()},
        }
        part = folder / f"{FILE}.part"
        with part.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / FILE)


def load(folder: Path) -> RunMap | None:
    """The map of a run folder, None when nothing was ever tracked from it."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        trials = {TrialId.parse(text): _id(run_id) for text, run_id in content["trials"].items()}
        parent = None if content["parent"] is None else _id(content["parent"])
        return RunMap(key=_id(content["key"]), parent=parent, trials=trials)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path} maps trials to MLflow runs, but cannot be read ({error}). Restore it, or "
            "delete it and the runs it belonged to, and resume."
        ) from None


def _id(text: object) -> str:
    """A run id or key; what MLflow puts into paths and queries holds nothing else."""
    if not isinstance(text, str) or re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text) is None:
        raise ValueError(f"an id is letters and digits, but got {text!r:.100}")
    return text


def fresh(folder: Path) -> RunMap:
    """A new map, already on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    made = RunMap(key=uuid.uuid4().hex)
    made.save(folder)
    return made
