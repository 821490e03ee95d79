"""Pretraining that trials share: the first one of a seed trains, the others load its state.

What a file holds depends on the data, the net, the optimiser, the seed and the machine's kind of
device alone, and its name is a digest of all of these. Trials that want the same file at the same
time wait for the one that makes it; a lock ends with the process that holds it.
"""

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tuneparts.core import settings
from tuneparts.core.errors import CheckpointError
from tuneparts.data.task import Task, digest
from tuneparts.training import checkpoint

_FORM = 1
"""Changes when the same facts would make other weights."""


def file_of(facts: Mapping[str, Any], task: Task, seed: int, device: torch.device) -> Path:
    """Name the file of a pretrained state, in the cache of this machine.

    Args:
        facts: every setting that pretraining depends on, as JSON can hold it.
        task: the data.
        seed: of the trial.
        device: of the trial.
    """
    whole = {
        "form": _FORM, "facts": facts, "data": digest(task), "seed": seed,
        "device": device.type, "torch": torch.__version__,
    }  # fmt: skip
    text = json.dumps(whole, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    return settings.current().cache_dir / "pretrained" / f"{name}.pt"


def shared(path: Path, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Load a state, or make and keep it if nobody has.

    Args:
        path: from `file_of`.
        make: called at most once on this machine, unless the file is lost or damaged.
    """
    with _locked(path):
        if path.exists():
            try:
                return checkpoint.load(path)
            except CheckpointError:
                path.unlink()
        state = make()
        checkpoint.save(path, state)
        return state


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
