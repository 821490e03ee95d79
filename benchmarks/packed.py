"""Packed trials: a step of P standard trials at once beside P steps of single ones, on one thread.

Trials differ in their learning rates and augmentation ranges, as those of random search do.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.measure import cpu_turns, noise_context, one_thread, ratios
from benchmarks.results import Result, Row, result, tell
from tuneparts.baselines.standard import StandardConfig
from tuneparts.models import DigitsCnn, Mlp, MnistCnn, NetConfig

_BATCH = 50


_CASES: dict[str, tuple[NetConfig, tuple[int, ...], int, int]] = {
    "mnist_cnn": (MnistCnn(), (1, 28, 28), 1, 9),
    "digits_cnn": (DigitsCnn(), (1, 8, 8), 4, 40),
    "mlp": (Mlp(), (1, 8, 8), 0, 60),
    "small_mlp": (Mlp(widths=(64, 64)), (1, 8, 8), 0, 60),
}
"""Net, shape of an input, augmentation samples and rounds."""


def run(*, quick: bool) -> Result:
    """Trials trained in a second by a pack, over those of single learners: `speedup.NET.P`."""
    sizes = (1, 4) if quick else (1, 4, 8, 16)
    rows: list[Row] = []
    with one_thread():
        for name, (net, in_shape, samples, rounds) in _CASES.items():
            learners = partial(_learners, net, in_shape, samples)
            steps = {"single": learners(1)[0].step}
            steps |= {str(size): _together(learners(size)) for size in sizes}
            seconds = cpu_turns(steps, rounds=2 if quick else rounds)
            for size in sizes:
                row = _row(f"speedup.{name}.{size}", seconds["single"], seconds[str(size)], size)
                tell(row)
                rows.append(row)
    return result("packed", {row["what"]: row["speedup"] for row in rows}, rows)


def _together(learners: list[Any]) -> Callable[[], object]:
    """One step of all these learners at once: the only place that knows how packs are made."""
    pack = learners[0].config.pack(learners)
    return lambda: pack.step(learners[0], range(len(learners)))


def _learners(net: NetConfig, in_shape: tuple[int, ...], samples: int, size: int) -> list[Any]:
    context = noise_context(4 * _BATCH, in_shape, mean=0.5, std=0.3)
    learners = []
    for lane in range(1, size + 1):
        affine = {"kind": "lila", "rotation": 0.1 * lane}
        config = StandardConfig(
            net=net,
            hypers={"affine": affine, "samples": samples} if samples else {},
            optimiser={"lr": 1e-3 / lane},
            batch_size=_BATCH,
            passes=10**6,
        )
        learners.append(config.build(context))
    return learners


def _row(what: str, single: list[float], pack: list[float], size: int) -> Row:
    found = ratios(single, pack)
    return {
        "what": what,
        "speedup": size * found["median"],
        "slowest": size * found["fastest"],
        "fastest": size * found["slowest"],
        "single ms": 1000 * median(single),
        "ms a lane": 1000 * median(pack) / size,
    }
