"""Bench of one step of each method as the net grows (Mlodozeniec et al. 2023, appendix D).

Partitioned and Augerino steps grow like a standard step, in time and memory. A step of
differentiable Laplace with an exact diagonal carries Jacobians of a batch, K times the weights for
each example; with Kronecker factors it carries those by the outputs of the layers. The learners
themselves are measured, on one thread, interleaved; times are CPU time of this process,
memory is the largest sum of bytes of live tensors. Where Laplace refuses for lack of memory the row
says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tuneparts import seeding
from tuneparts.baselines.augerino import AugerinoConfig
from tuneparts.baselines.laplace import LaplaceConfig, LaplaceLearner
from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import cpu_seconds, one_thread, peak_bytes
from tuneparts.data.task import Examples, Task
from tuneparts.errors import ConfigError
from tuneparts.models import DigitsCnn, Mlp, NetConfig
from tuneparts.models.sizes import count_parameters
from tuneparts.partition import PartitionedConfig
from tuneparts.partition.learner import PartitionedLearner
from tuneparts.training.learner import Context, Learner, MethodConfig
from tuneparts.training.loop import LoopLearner

_IN_SHAPE, _NUM_CLASSES = (1, 14, 14), 10
_BATCH, _SAMPLES = 32, 4
_MAX_GB = 2.0


def run(*, quick: bool = False) -> dict[str, Any]:
    """Time and peak memory of a step against width, and their ratios to a standard step."""
    widths = (8, 16) if quick else (16, 32, 64, 128, 256)
    rounds = 1 if quick else 7
    nets: dict[str, Callable[[int], NetConfig]] = {
        "mlp": lambda width: Mlp(widths=(width, width)),
        "cnn": lambda width: DigitsCnn(channels=(width // 2, width), hidden=width),
    }
    rows: list[dict[str, Any]] = []
    with one_thread():
        for name, make in nets.items():
            for width in widths:
                rows += _rows(name, width, make(width), rounds=rounds)
    ratios = {
        f"{quantity}.{row['method']}.{row['net']}.w{row['width']}": row[f"{quantity} ratio"]
        for row in rows
        for quantity in ("time", "memory")
        if row["method"] != "standard" and f"{quantity} ratio" in row
    }
    return {"bench": "complexity", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _rows(name: str, width: int, net: NetConfig, *, rounds: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[], Callable[[], object]]] = {
        "standard": lambda: _steps(_build(StandardConfig, net)).step,
        "partitioned_weights": lambda: _partitioned(net).weight_step,
        "partitioned_hypers": lambda: _partitioned(net).hyper_step,
        "augerino": lambda: _steps(_build(AugerinoConfig, net)).step,
        "laplace_weights": lambda: _laplace(net).weight_step,
        "laplace_hypers": lambda: _laplace(net).evidence_step,
        "kronecker_hypers": lambda: _laplace(net, curvature="kronecker").evidence_step,
    }
    steps, refusals = {}, {}
    for method, make in ways.items():
        try:
            steps[method] = make()
        except ConfigError as error:
            refusals[method] = str(error)
    for step in steps.values():  # the first step allocates state and picks kernels
        step()
    timed = {method: lambda step=step: cpu_seconds(step) for method, step in steps.items()}
    seconds = {
        method: machine.spread(found)
        for method, found in machine.interleave(timed, rounds=rounds).items()
    }
    memory = {method: _peak(ways[method]) for method in steps}
    num_weights = count_parameters(net.build(_IN_SHAPE, _NUM_CLASSES))
    rows = []
    for method in ways:
        row: dict[str, Any] = {"net": name, "width": width, "weights": num_weights}
        row["method"] = method
        if method in refusals:
            row["note"] = f"out of memory: {refusals[method]}"
        else:
            row |= {
                "ms": 1000 * seconds[method]["median"],
                "fastest ms": 1000 * seconds[method]["fastest"],
                "slowest ms": 1000 * seconds[method]["slowest"],
                "MB": memory[method] / 1e6,
                "time ratio": seconds[method]["median"] / seconds["standard"]["median"],
                "memory ratio": memory[method] / memory["standard"],
            }
        rows.append(row)
    return rows


def _peak(make: Callable[[], Callable[[], object]]) -> int:
    """Peak of building a learner and two steps of it."""

    def work() -> None:
        step = make()
        for _ in range(2):
            step()

    return peak_bytes(work)


def _build(config: type[MethodConfig], net: NetConfig, **fields: Any) -> Learner:
    built = config(
        **{
            "net": net,
            "hypers": {"affine": {"rotation": 0.5}, "samples": _SAMPLES},
            "batch_size": _BATCH,
            "passes": 10**6,
            **fields,
        }
    )
    return built.build(_context())


def _steps(learner: Learner) -> LoopLearner:
    assert isinstance(learner, LoopLearner)
    return learner


def _partitioned(net: NetConfig) -> PartitionedLearner:
    learner = _build(PartitionedConfig, net)
    assert isinstance(learner, PartitionedLearner)
    return learner


def _laplace(net: NetConfig, **fields: Any) -> LaplaceLearner:
    learner = _build(LaplaceConfig, net, evidence_batch=_BATCH, max_gb=_MAX_GB, **fields)
    assert isinstance(learner, LaplaceLearner)
    return learner


def _context() -> Context:
    draw = seeding.numpy_generator(0, "bench images")
    images = draw.integers(0, 256, (300, *_IN_SHAPE), dtype=np.uint8)
    train = Examples(images, draw.integers(0, _NUM_CLASSES, 300))
    nothing = train.subset(np.arange(0))
    task = Task("noise", train, nothing, nothing, _NUM_CLASSES, mean=(0.0,), std=(1.0,))
    return Context(task=task, seed=0, device=torch.device("cpu"))
