"""What a run learnt from: written down when it begins, and compared when it goes on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneparts.core import atomic
from tuneparts.core.errors import DataError, StorageError
from tuneparts.data.task import Task, digest

FILE = "data.json"


def keep(
    task: Task,
    folder: Path,
    variants: Mapping[str, Task] | None = None,
    draws: Mapping[int, tuple[Task, Mapping[str, Task]]] | None = None,
) -> None:
    """Write the record of a run's data, or compare the data with the record that is there.

    `draws` has the data and its variants by seed, where it is drawn; a grown run may add draws.
    """
    now = _facts(task, variants)
    if draws:
        now["draws"] = {str(seed): _facts(*one) for seed, one in draws.items()}
    before = read(folder)
    known = (before or {}).get("draws", {})
    is_grown = bool(known) and not set(now.get("draws", {})) <= set(known)
    if before is not None and is_grown:
        before["draws"] = {**now["draws"], **known}
    if before is None or (is_grown and before == now):
        try:
            atomic.write_text(folder / FILE, json.dumps(now, indent=2) + "\n")
        except OSError as error:
            raise StorageError(f"the record of the data cannot be written: {error}") from error
    elif before != now:
        names = [name for name in now if before.get(name) != now[name]]
        changes = ", ".join(f"{name} was {before.get(name)} and is {now[name]}" for name in names)
        raise DataError(
            f"a run goes on with the data that it began with, but that of {folder.name} has "
            f"changed: {changes}. Bring the data back, or start a new run. A function that makes "
            "data at random must seed its generator."
        )


def read(folder: Path) -> dict[str, Any] | None:
    """The record of a run's data; None if it has not begun."""
    try:
        found: Any = json.loads(atomic.inside(folder, folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _facts(task: Task, variants: Mapping[str, Task] | None = None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": task.name,
        "target": task.target.kind,
        "in_shape": list(task.in_shape),
        "num_outputs": task.num_outputs,
        **{f"num_{part}": len(getattr(task, part)) for part in ("train", "val", "test")},
        "digest": digest(task),
    }
    if task.corrupted is not None:  # what is known without reading gigabytes
        labels = task.corrupted.labels
        digits = hashlib.sha256(labels.tobytes()).hexdigest()[:12]
        kinds = list(task.corrupted.kinds)
        facts["corrupted"] = {"kinds": kinds, "num_images": len(labels), "labels": digits}
    if variants:
        facts["variants"] = {name: _facts(one) for name, one in sorted(variants.items())}
    return facts
