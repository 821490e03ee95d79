"""Measures: sides that take turns, CPU seconds on one thread, peaks of memory, small searches."""

import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tuneparts as tp
from tuneparts.core import seeding
from tuneparts.data.task import Examples, Task
from tuneparts.search.events import Event
from tuneparts.training.learner import Context
from tuneparts.training.process import keep_freed_memory

T = TypeVar("T")


def interleave(ways: Mapping[str, Callable[[], T]], *, rounds: int) -> dict[str, list[T]]:
    """Call every way once per round, so that a busy minute hits all of them alike."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            results[name].append(way())
    return results


def cpu_seconds(call: Callable[[], object]) -> float:
    """Measure the CPU seconds of one call, in which other processes count little."""
    start = time.process_time()
    call()
    return time.process_time() - start


def cpu_turns(steps: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of steps that take turns, after two that allocate state and choose kernels."""
    timed = {name: partial(cpu_seconds, step) for name, step in steps.items()}
    interleave(timed, rounds=2)
    return interleave(timed, rounds=rounds)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, fastest and slowest of repeated measurements."""
    return {"median": statistics.median(values), "fastest": min(values), "slowest": max(values)}


def ratios(ours: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Median, fastest and slowest of ours over the other side, turn by turn."""
    return spread([one / other for one, other in zip(ours, others, strict=True)])


def ratio_columns(seconds: Mapping[str, Sequence[float]], other: str) -> dict[str, float]:
    """Columns of a row that compares `ours` with another side."""
    found = ratios(seconds["ours"], seconds[other])
    columns = {"ratio" if key == "median" else f"ratio, {key}": found[key] for key in found}
    return columns | {
        f"{way} ms": 1000 * statistics.median(seconds[way]) for way in (other, "ours")
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread inside the block and keep freed memory, as a trial does."""
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def noise_context(
    num_images: int, in_shape: tuple[int, ...], *, mean: float, std: float
) -> Context:
    """Make a context with images of noise and random labels, on which steps can be timed."""
    draw = seeding.numpy_generator(0, "bench images")
    images = draw.integers(0, 256, (num_images, *in_shape), dtype=np.uint8)
    train = Examples(images, draw.integers(0, 10, num_images))
    nothing = train.subset(np.arange(0))
    task = Task("noise", train, nothing, nothing, num_classes=10, mean=(mean,), std=(std,))
    return Context(task=task, seed=0, device=torch.device("cpu"))


def one_arm(arm: tp.Arm, data: Mapping[str, Any], *, seed: int = 0) -> tp.Search:
    """Make a search of one arm."""
    return tp.Search(
        name="benchmark",
        question="What does it cost?",
        scale=tp.Scale.SMOKE,
        data=data,
        metric="val/accuracy",
        steps=arm.config.steps,
        seeds=(seed,),
        arms=(arm,),
    )


class Clock:
    """Observes a search, and notes the time of every event of a kind."""

    def __init__(self, kind: type[Event], now: Callable[[], float] = time.perf_counter) -> None:
        self._kind, self._now = kind, now
        self.ticks: list[float] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, self._kind):
            self.tick()

    def tick(self, *_: object) -> None:
        self.ticks.append(self._now())


def peak_bytes(work: Callable[[], None]) -> int:
    """Measure the most bytes that tensors made inside `work` held at one time."""
    ledger = _Ledger()
    with ledger:
        work()
    return ledger.peak


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations made and that are alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(out):
            key, num_bytes = storage._cdata, storage.nbytes()
            if key not in self._known | given:
                self._known.add(key)
                self.live += num_bytes
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._leave, key, num_bytes)
        return out

    def _leave(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self.live -= num_bytes


def _storages(tree: Any) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
