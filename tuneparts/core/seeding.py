"""Named random streams: (seed, stream name) -> independent generators.

Nothing else in tuneparts seeds. Data order, initialisation, masks, augmentation and client
sampling each have a stream of their own, so that adding one never shifts another.
"""

import hashlib
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # torch takes seconds to import, and planning a search does not need it
    import torch

_ALONE = threading.RLock()


def derive(seed: int, *stream: str | int) -> int:
    """An integer in [0, 2**63) that depends on the seed and on every part of the stream's name."""
    text = "\x1f".join([str(int(seed)), *map(str, stream)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, *stream: str | int) -> np.random.Generator:
    """A NumPy generator for one named stream."""
    return np.random.default_rng(derive(seed, *stream))


def torch_generator(
    seed: int, *stream: str | int, device: "torch.device | str" = "cpu"
) -> "torch.Generator":
    """A torch generator for one named stream, on the device where it draws."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, *stream))


@contextmanager
def alone(devices: "Sequence[torch.device]" = ()) -> Iterator[None]:
    """Have torch's global generators to oneself inside the block, and restore them after.

    Other threads wait here: the generators belong to the process, so two that draw from them in
    turn would get numbers that depend on who was faster. A thread that draws without asking here
    is not held back.

    Args:
        devices: GPUs whose generators are restored too.
    """
    import torch

    with _ALONE, torch.random.fork_rng(devices=list(devices)):
        yield


@contextmanager
def isolated(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block and restore it after.

    For library code that cannot take a generator, above all layer initialisation. Build on the
    CPU inside the block and move to the device afterwards.
    """
    import torch

    with alone():
        torch.manual_seed(derive(seed, *stream))
        yield


def _seed_torch(torch: Any, seed: int) -> None:
    if torch.backends.cuda.is_built():
        torch.manual_seed(seed)  # GPUs that are not in use yet are seeded when they are
    else:  # `manual_seed` would keep a stack trace for each kind of device, 0.5 ms in all
        torch.default_generator.manual_seed(seed)


class _SeedTorch(MetaPathFinder):
    """Seeds torch when it is first imported, and remembers its state from before."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.before: torch.Tensor | None = None

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: Any) -> None:
                load(module)
                self.before = module.get_rng_state()
                _seed_torch(module, self._seed)

            spec.loader.exec_module = load_and_seed  # type: ignore[method-assign]
        return spec


@contextmanager
def seeded_globals(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch inside the block, and restore them.

    For code of users, which may draw from them. Other threads may draw too: this is no lock. Torch
    is not imported for it, but seeded when the block is the first to import it.
    """
    late = _SeedTorch(derive(seed, *stream, "torch"))
    # Not between the draws of another thread that is inside `alone`.
    with _ALONE:
        states = random.getstate(), np.random.get_state()
        loaded: Any = sys.modules.get("torch")
        of_torch, of_gpus = None, list[Any]()
        if loaded is None:
            sys.meta_path.insert(0, late)
        else:
            of_torch = loaded.get_rng_state()
            # Asking for the states of GPUs would initialise them.
            of_gpus = loaded.cuda.get_rng_state_all() if loaded.cuda.is_initialized() else []
            _seed_torch(loaded, derive(seed, *stream, "torch"))
        random.seed(derive(seed, *stream, "python"))
        np.random.seed(divmod(derive(seed, *stream, "numpy"), 2**32))
    try:
        yield
    finally:
        with _ALONE:
            random.setstate(states[0])
            np.random.set_state(states[1])
            if late in sys.meta_path:
                sys.meta_path.remove(late)
            loaded, before = sys.modules.get("torch"), late.before if of_torch is None else of_torch
            if before is not None:
                loaded.set_rng_state(before)
                loaded.cuda.set_rng_state_all(of_gpus)
