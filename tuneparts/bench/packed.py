"""Bench of packed trials: a step of P lanes beside P steps of single learners, on one thread.

Both sides are the learners themselves, at different learning rates and augmentation ranges, for
standard training, and for partitioned training as published and by joint steps. Time is CPU time of
this process, so that other work on the machine counts less.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import cpu_seconds, noise_context, one_thread
from tuneparts.models import DigitsCnn, Mlp, MnistCnn, NetConfig
from tuneparts.partition import PartitionedConfig
from tuneparts.training.optimisers import adam
from tuneparts.training.supervised import SupervisedConfig

LANES = (1, 4, 8, 16)
_BATCH = 50


@dataclass(frozen=True)
class _Case:
    """One net and method, with the augmentation that random search varies for images."""

    net: NetConfig
    in_shape: tuple[int, ...]
    samples: int
    rounds: int
    method: type[SupervisedConfig] = StandardConfig
    fields: Mapping[str, Any] = field(default_factory=dict)


_JOINT = {"scheme": "node", "mixed": True, "hyper_share": 0.2}
_CASES = {
    "small_mlp": _Case(Mlp(widths=(64, 64)), (1, 8, 8), 0, 60),
    "mlp": _Case(Mlp(), (1, 8, 8), 0, 60),
    "digits_cnn": _Case(DigitsCnn(), (1, 8, 8), 4, 40),
    "mnist_cnn": _Case(MnistCnn(), (1, 28, 28), 1, 9),
    # A step is a weight step and a hyper step.
    "partitioned_mlp": _Case(Mlp(widths=(64, 64)), (1, 8, 8), 1, 40, PartitionedConfig),
    "partitioned_cnn": _Case(DigitsCnn(), (1, 8, 8), 4, 12, PartitionedConfig),
    "joint_cnn": _Case(DigitsCnn(), (1, 8, 8), 4, 15, PartitionedConfig, _JOINT),
}


def run(*, quick: bool = False) -> dict[str, Any]:
    """Trials trained in a second by a pack, over those of single learners; `speedup.NET.P`.

    For MLPs a row `limit.NET.P` has what is left when products and Adam are all that a step does.
    """
    ratios: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    with one_thread():
        for name, case in _CASES.items():
            lanes = LANES[:2] if quick else LANES
            seconds = _timed(case, lanes, rounds=2 if quick else case.rounds)
            for number in lanes:
                row = _row(f"speedup.{name}.{number}", seconds, number)
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
                ratios[row["what"]] = row["speedup"]
                rows.append(row)
            if isinstance(case.net, Mlp) and case.method is StandardConfig:
                single = machine.spread(seconds[0])["median"]
                row = _limit(case, lanes[-1], single, rounds=2 if quick else case.rounds)
                row["what"] = f"limit.{name}.{lanes[-1]}"
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
                rows.append(row)
    return {"bench": "packed", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _timed(case: _Case, lanes: tuple[int, ...], *, rounds: int) -> dict[int, list[float]]:
    """CPU seconds of a step: of a single learner under 0, and of packs by their lanes."""
    ways: dict[int, Callable[[], object]] = {0: _learner(case, 0).step}
    for number in lanes:
        learners = [_learner(case, lane) for lane in range(number)]
        pack = learners[0].config.pack(learners)
        ways[number] = partial(pack.step, learners[0], range(number))
    for way in ways.values():  # the first steps allocate state and choose kernels
        way()
        way()
    timed = {str(number): partial(cpu_seconds, way) for number, way in ways.items()}
    found = machine.interleave(timed, rounds=rounds)
    return {int(number): values for number, values in found.items()}


def _row(key: str, seconds: Mapping[int, list[float]], lanes: int) -> dict[str, Any]:
    pairs = zip(seconds[0], seconds[lanes], strict=True)
    found = machine.spread([lanes * single / pack for single, pack in pairs])
    return {
        "what": key,
        "speedup": found["median"],
        "slowest": found["fastest"],
        "fastest": found["slowest"],
        "single ms": 1000 * machine.spread(seconds[0])["median"],
        "ms a lane": 1000 * machine.spread(seconds[lanes])["median"] / lanes,
    }


def _limit(case: _Case, lanes: int, single: float, *, rounds: int) -> dict[str, Any]:
    """What a pack of MLPs cannot be quicker than: its products by `torch.bmm`, and fused Adam.

    Args:
        case: its net.
        lanes: P.
        single: seconds of a step of a single learner.
        rounds: measurements.
    """
    net = _learner(case, 0).net
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    products: list[tuple[Tensor, Tensor]] = []
    for number, layer in enumerate(layers):
        h = torch.randn(lanes, _BATCH, layer.in_features)
        w = torch.randn(lanes, layer.out_features, layer.in_features)
        g = torch.randn(lanes, _BATCH, layer.out_features)
        products += [(h, w.transpose(1, 2)), (g.transpose(1, 2), h), *([(g, w)] if number else [])]
    parameters = [one for one in net.parameters() for _ in range(lanes)]
    weights = [torch.randn_like(one, requires_grad=True) for one in parameters]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    ways: dict[str, Callable[[], object]] = {
        "products": lambda: [torch.bmm(one, other) for one, other in products],
        "adam": adam(weights, lr=1e-3).step,
    }
    for way in ways.values():
        way()
    timed = {name: partial(cpu_seconds, way) for name, way in ways.items()}
    found = {
        name: machine.spread(values)["median"] / lanes
        for name, values in machine.interleave(timed, rounds=rounds).items()
    }
    flops = sum(2 * one[0].numel() * other.shape[2] for one, other in products)
    return {
        "speedup": single / sum(found.values()),
        "products ms a lane": 1000 * found["products"],
        "adam ms a lane": 1000 * found["adam"],
        "bmm GFLOP/s": flops / found["products"] / 1e9,
    }


def _learner(case: _Case, lane: int) -> Any:
    hypers: dict[str, Any] = {}
    if case.samples:
        affine = {"kind": "lila", "rotation": 0.1 * (lane + 1)}
        hypers = {"affine": affine, "samples": case.samples}
    config = case.method(
        net=case.net,
        hypers=hypers,
        optimiser={"lr": 1e-3 / (lane + 1)},
        batch_size=_BATCH,
        passes=10**6,
        **case.fields,
    )
    return config.build(noise_context(4 * _BATCH, case.in_shape, mean=0.5, std=0.3))
