"""Packed trials: random search with `Arm(packed=P)` compared with the same search of single trials.

Trials differ in their learning rates and augmentation ranges. A search runs in this process, on one
thread. Of its three intervals the second is measured: its steps, a small validation and the
checkpoints; the first one builds nets and chooses kernels, and the last one tests.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import tuneparts as tp
from benchmarks import measure
from benchmarks.results import Result, Row, result, tell
from tuneparts.executors import Place, execute
from tuneparts.search.events import Row as Interval

_BATCH = 50
_CASES: dict[str, tuple[tp.nets.NetConfig, int, int, int]] = {
    "mnist_cnn": (tp.nets.MnistCnn(), 28, 1, 5),
    "digits_cnn": (tp.nets.DigitsCnn(), 8, 4, 30),
    "mlp": (tp.nets.Mlp(), 8, 0, 100),
    "small_mlp": (tp.nets.Mlp(widths=(64, 64)), 8, 0, 200),
}
"""Net, side of an image, augmentation samples and steps of an interval; least gain first."""


def run(*, quick: bool) -> Result:
    """Trials trained in a second by a pack of P, over those of single ones: `speedup.NET.P`.

    For MLPs a row `limit.NET.P` has what is left when products and Adam are all that a step does.
    """
    sizes, rounds = ((4,), 1) if quick else ((4, 8, 16), 3)
    rows: list[Row] = []
    with measure.one_thread():
        for name, (net, side, samples, steps) in _CASES.items():
            seconds = partial(_seconds, net, side, samples, 2 if quick else steps)
            ways = {str(size): partial(seconds, size) for size in (1, *sizes)}
            found = measure.interleave(ways, rounds=rounds)
            new = [_row(f"speedup.{name}.{one}", found["1"], found[str(one)], one) for one in sizes]
            if isinstance(net, tp.nets.Mlp):
                limit = _limit(net.build((1, side, side), 10), sizes[-1], median(found["1"]))
                new.append({"what": f"limit.{name}.{sizes[-1]}", **limit})
            rows += new
            for row in new:
                tell(row)
    speedups = {row["what"]: row["speedup"] for row in rows if "single ms" in row}
    return result("packed", speedups, rows)


def _seconds(net: tp.nets.NetConfig, side: int, samples: int, steps: int, size: int) -> float:
    """CPU seconds of a step of all trials of a search with so many, trained together."""
    space = {"optimiser.lr": tp.Uniform(low=1e-4, high=1e-3, log=True)}
    if samples:
        space["hypers.affine.rotation"] = tp.Uniform(low=0.1, high=1.0)
    config = tp.Standard(
        net=net,
        hypers={"affine": {"kind": "lila"}, "samples": samples} if samples else {},
        batch_size=_BATCH,
        steps=2 * steps + 1,
        interval=steps,
    )
    algorithm = tp.RandomSearch(num_trials=size)
    arm = tp.Arm(name="random", config=config, algorithm=algorithm, space=space, packed=size)
    parts = {"num_val": 10, "num_test": 10, "seed": 0}
    search = measure.one_arm(arm, {"name": noise, "arguments": {"side": side}, **parts})
    clock = measure.Clock(Interval, time.process_time)
    with tempfile.TemporaryDirectory() as folder:
        execute(search, folder=Path(folder), place=Place("local", workers=1), observers=[clock])
    return (clock.ticks[2 * size - 1] - clock.ticks[size - 1]) / steps


def noise(side: int) -> tuple[Any, Any]:
    """Images of noise with random labels, as data of a search."""
    examples = measure.noise_context(5 * _BATCH, (1, side, side), mean=0.0, std=1.0).task.train
    return examples.inputs, examples.labels


def _row(what: str, single: list[float], pack: list[float], size: int) -> Row:
    found = measure.ratios(single, pack)
    return {
        "what": what,
        "speedup": size * found["median"],
        "slowest": size * found["fastest"],
        "fastest": size * found["slowest"],
        "single ms": 1000 * median(single),
        "ms a lane": 1000 * median(pack) / size,
    }


def _limit(net: nn.Module, size: int, single: float) -> dict[str, Any]:
    """What a pack of MLPs cannot be quicker than: its products by `torch.bmm`, and fused Adam."""
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    products: list[tuple[Tensor, Tensor]] = []
    for number, layer in enumerate(layers):
        h = torch.randn(size, _BATCH, layer.in_features)
        w = torch.randn(size, layer.out_features, layer.in_features)
        g = torch.randn(size, _BATCH, layer.out_features)
        products += [(h, w.transpose(1, 2)), (g.transpose(1, 2), h), *([(g, w)] if number else [])]
    parameters = [one for one in net.parameters() for _ in range(size)]
    weights = [torch.randn_like(one, requires_grad=True) for one in parameters]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    ways: dict[str, Callable[[], object]] = {
        "products": lambda: [torch.bmm(one, other) for one, other in products],
        "adam": torch.optim.Adam(weights, fused=True).step,
    }
    found = {name: median(own) / size for name, own in measure.cpu_turns(ways, rounds=30).items()}
    flops = sum(2 * one[0].numel() * other.shape[2] for one, other in products)
    return {
        "speedup": single / sum(found.values()),
        "products ms a lane": 1000 * found["products"],
        "adam ms a lane": 1000 * found["adam"],
        "bmm GFLOP/s": flops / found["products"] / 1e9,
    }
