"""Bench of our training step beside one written by hand, and of how near it is to the limit.

Both do the same work: the same net at the same weights, Adam, four augmentation samples of each of
50 images. The hand-written one is that of `bench.plain`; a third side is that one with the quick
settings of torch's manual. The limit is a matrix product of the same precision, timed in the same
rounds. One thread; time is CPU time of this process, so that other work on the machine counts less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import cpu_seconds, noise_context, one_thread
from tuneparts.bench.plain import plain_net, plain_step
from tuneparts.models import DigitsCnn, FixupResNet, Mlp, MnistCnn, NetConfig, WideResNet
from tuneparts.training.learner import Context
from tuneparts.training.loop import LoopLearner

_RANGES = {
    "translate_x": 0.05,
    "translate_y": 0.05,
    "rotation": 0.5,
    "scale_x": 0.05,
    "scale_y": 0.05,
    "shear": 0.05,
}
_SAMPLES = 4
_SIDE = 1024
"""Of the matrices whose product is the limit."""
_LEAST_SECONDS = 0.03
"""Steps are timed in groups that take about so long."""


@dataclass(frozen=True)
class _Case:
    net: NetConfig
    in_shape: tuple[int, int, int]
    rounds: int


_CASES = {
    "digits_cnn": _Case(DigitsCnn(), (1, 8, 8), 31),
    "mnist_cnn": _Case(MnistCnn(), (1, 28, 28), 15),
    "fixup_resnet8": _Case(FixupResNet(depth=8), (3, 32, 32), 11),
    "wrn_16_2": _Case(WideResNet(depth=16, width=2), (3, 32, 32), 7),
    "mlp": _Case(Mlp(), (1, 28, 28), 31),
}


def run(*, quick: bool = False) -> dict[str, Any]:
    """Ratios of our step to the hand-written one, and the speed of each row in GFLOP/s."""
    ratios: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    with one_thread():
        for name, case in _CASES.items():
            row = _row(
                name, case, batch_size=2 if quick else 50, rounds=2 if quick else case.rounds
            )
            rows.append(row)
            ratios[f"ours_over_plain.{name}"] = row["ratio"]
            ratios[f"ours_over_tuned.{name}"] = row["ratio to tuned"]
            ratios[f"of_product.{name}"] = row["ours GFLOP/s"] / row["product GFLOP/s"]
            print(f"{name}: {row['ratio']:.3f} of the hand-written step", flush=True)
    return {"bench": "step", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _row(name: str, case: _Case, *, batch_size: int, rounds: int) -> dict[str, Any]:
    steps = ways(case.net, case.in_shape, batch_size=batch_size)
    flops = _flops(steps["ours"])
    matrix = torch.rand(_SIDE, _SIDE)
    steps["product"] = lambda: matrix @ matrix
    timed = {side: partial(_seconds, step, _grouped(step)) for side, step in steps.items()}
    seconds = machine.interleave(timed, rounds=rounds)
    medians = {side: machine.spread(found)["median"] for side, found in seconds.items()}
    to_plain, to_tuned = (
        machine.spread([a / b for a, b in zip(seconds["ours"], seconds[side], strict=True)])
        for side in ("plain", "tuned")
    )
    return {
        "what": f"ours_over_plain.{name}",
        "ratio": to_plain["median"],
        "ratio, fastest": to_plain["fastest"],
        "ratio, slowest": to_plain["slowest"],
        "ratio to tuned": to_tuned["median"],
        "plain ms": 1000 * medians["plain"],
        "tuned ms": 1000 * medians["tuned"],
        "ours ms": 1000 * medians["ours"],
        "GFLOP": flops / 1e9,
        "plain GFLOP/s": flops / medians["plain"] / 1e9,
        "ours GFLOP/s": flops / medians["ours"] / 1e9,
        "product GFLOP/s": 2 * _SIDE**3 / medians["product"] / 1e9,
        "batch": batch_size,
        "samples": _SAMPLES,
    }


def ways(
    net: NetConfig, in_shape: tuple[int, int, int], *, batch_size: int
) -> dict[str, Callable[[], object]]:
    """Make the same training step three times: ours, by hand, and by hand with quick settings."""
    context = noise_context(20 * batch_size, in_shape, mean=0.0, std=1.0)
    images = torch.from_numpy(context.task.train.inputs)
    labels = torch.from_numpy(context.task.train.labels)
    by_hand = partial(
        plain_step,
        images=images,
        labels=labels,
        ranges=tuple(_RANGES.values()),
        batch_size=batch_size,
        num_samples=_SAMPLES,
    )
    return {
        "ours": _ours(net, context, batch_size),
        "plain": by_hand(plain_net(net, in_shape, 10)),
        "tuned": by_hand(plain_net(net, in_shape, 10), is_tuned=True),
    }


def _ours(net: NetConfig, context: Context, batch_size: int) -> Callable[[], object]:
    config = StandardConfig(
        net=net,
        hypers={"affine": {"kind": "lila", **_RANGES}, "samples": _SAMPLES},
        optimiser={"kind": "adam"},
        batch_size=batch_size,
        passes=10**6,
    )
    learner = config.build(context)
    assert isinstance(learner, LoopLearner)
    return learner.step


def _flops(step: Callable[[], object]) -> int:
    """Count the operations of products and convolutions in one step, forwards and backwards."""
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def _grouped(step: Callable[[], object]) -> int:
    """How many steps take about as long as can be timed, after two that warm up."""
    fastest = min(_seconds(step, 1) for _ in range(3))
    return max(1, round(_LEAST_SECONDS / fastest))


def _seconds(step: Callable[[], object], times: int) -> float:
    def repeated() -> None:
        for _ in range(times):
            step()

    return cpu_seconds(repeated) / times
