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

    Where replicates have data of their own, `draws` has the data and its variants by seed. A run
    that has grown may have draws that its record does not know, which are added.
    """
    now = _with_variants(task, variants or {})
    if draws:
        now["draws"] = {str(seed): _with_variants(*one) for seed, one in draws.items()}
    before = read(folder)
    known = (before or {}).get("draws", {})
    more = {
        **known,
        **{seed: one for seed, one in now.get("draws", {}).items() if seed not in known},
    }
    if before is None or (known and more != known and {**before, "draws": more} == now):
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


def _with_variants(task: Task, variants: Mapping[str, Task]) -> dict[str, Any]:
    facts = _facts(task)
    if variants:
        facts["variants"] = {name: _facts(one) for name, one in sorted(variants.items())}
    return facts


def _facts(task: Task) -> dict[str, Any]:
    corrupted = (
        task.corrupted
        and {  # what can be told without reading gigabytes
            "kinds": list(task.corrupted.kinds),
            "num_images": len(task.corrupted.labels),
            "labels": hashlib.sha256(task.corrupted.labels.tobytes()).hexdigest()[:12],
        }
    )
    return {
        "name": task.name,
        "target": task.target.kind,
        "in_shape": list(task.in_shape),
        "num_outputs": task.num_outputs,
        "num_train": len(task.train),
        "num_val": len(task.val),
        "num_test": len(task.test),
        "digest": digest(task),
        **({"corrupted": corrupted} if corrupted else {}),
    }
