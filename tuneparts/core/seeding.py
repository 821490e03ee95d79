"""Named random streams: (seed, stream name) -> independent generators. Nothing else seeds.

Each use has a stream of its own, so that adding one never shifts another.
"""

import hashlib
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """Have torch's global generators (and GPUs') to oneself: other threads wait; restored after."""
    import torch

    with _ALONE, torch.random.fork_rng(devices=list(devices)):
        yield


@contextmanager
def isolated(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed torch's global CPU generator in the block, for layer initialisation; restored after."""
    import torch

    with alone():
        torch.manual_seed(derive(seed, *stream))
        yield


class _SeedTorch:
    """Seeds torch, now or when it is first imported (as a finder of imports), and restores it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._before: tuple[Any, ...] | None = None

    def seed(self, torch: Any) -> None:
        # Asking for the states of GPUs would initialise them.
        of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._before = torch, torch.get_rng_state(), of_gpus
        if torch.backends.cuda.is_built():
            torch.manual_seed(self._seed)  # GPUs that are not in use yet are seeded when they are
        else:  # `manual_seed` would keep a stack trace for each kind of device, 0.5 ms in all
            torch.default_generator.manual_seed(self._seed)

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec("torch")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: Any) -> None:
                load(module)
                self.seed(module)

            spec.loader.exec_module = load_and_seed  # type: ignore[method-assign]
        return spec

    def restore(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._before is not None:
            torch, state, of_gpus = self._before
            torch.set_rng_state(state)
            torch.cuda.set_rng_state_all(of_gpus)


@contextmanager
def seeded_globals(seed: int, *stream: str | int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch inside the block; restored after."""
    of_torch = _SeedTorch(derive(seed, *stream, "torch"))
    with _ALONE:  # not between the draws of another thread that is inside `alone`
        states = random.getstate(), np.random.get_state()
        if "torch" in sys.modules:
            of_torch.seed(sys.modules["torch"])
        else:
            sys.meta_path.insert(0, of_torch)
        random.seed(derive(seed, *stream, "python"))
        np.random.seed(divmod(derive(seed, *stream, "numpy"), 2**32))
    try:
        yield
    finally:
        with _ALONE:
            random.setstate(states[0])
            np.random.set_state(states[1])
            of_torch.restore()
