"""Bench of composed weights: a training step, and all weights of a large ensemble once.

Both sides of a step are the learners themselves on the same net, batch and optimiser, taking turns
on one thread. Time is CPU time of this process, so that other work on the machine counts less.
"""

from functools import partial
from typing import Any

import torch

from tuneparts import seeding
from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import cpu_seconds, noise_context, one_thread
from tuneparts.models import WideResNet
from tuneparts.superweights import ties
from tuneparts.superweights.allocation import make_plan
from tuneparts.superweights.bank import TemplateBank
from tuneparts.superweights.clusters import depth_bins, layers_of
from tuneparts.superweights.learner import SuperweightsConfig
from tuneparts.training.learner import Context

_NETS = {"wrn_16_2": WideResNet(depth=16, width=2), "wrn_28_2": WideResNet(depth=28, width=2)}
_IN_SHAPE = (3, 32, 32)
_OPTIMISER = {"kind": "sgd", "lr": 0.1, "nesterov": True, "weight_decay": 5e-4}


def run(*, quick: bool = False) -> dict[str, Any]:
    """Ratios of a step with composed weights to one with ordinary weights, and composing alone."""
    batch_size, rounds = (2, 3) if quick else (32, 15)
    rows = []
    with one_thread():
        for name, net in _NETS.items():
            rows.append(_step_row(name, net, batch_size=batch_size, rounds=rounds))
        width, budget = (2, 1_500_000) if quick else (10, 36_500_000)
        rows.append(_compose_row(width, budget, rounds=rounds))
    return {
        "bench": "superweights",
        "ratios": {row["what"]: row["ratio"] for row in rows if "ratio" in row},
        "rows": rows,
        "machine": machine.describe(),
    }


def _step_row(name: str, net: WideResNet, *, batch_size: int, rounds: int) -> dict[str, Any]:
    common: dict[str, Any] = {
        "optimiser": _OPTIMISER,
        "batch_size": batch_size,
        "passes": 10**6,
        "interval": 10**6,
    }
    standard: Any = StandardConfig(net=net, **common).build(_context())
    # Clusters of bins and private coefficients from the start: no stage but the last.
    ours: Any = SuperweightsConfig(
        members=(net,), sharing={"clusters": "depth", "coefficients": "private"}, **common
    ).build(_context())
    ways = {
        "standard": partial(cpu_seconds, standard.step),
        "ours": partial(cpu_seconds, ours.step),
    }
    machine.interleave(ways, rounds=2)  # the first steps allocate state and choose kernels
    seconds = machine.interleave(ways, rounds=rounds)
    pairs = zip(seconds["ours"], seconds["standard"], strict=True)
    found = machine.spread([one / other for one, other in pairs])
    return {
        "what": f"step.{name}",
        "ratio": found["median"],
        "ratio, fastest": found["fastest"],
        "ratio, slowest": found["slowest"],
        "standard ms": 1000 * machine.spread(seconds["standard"])["median"],
        "ours ms": 1000 * machine.spread(seconds["ours"])["median"],
        "batch": batch_size,
    }


def _compose_row(width: int, budget: int, *, rounds: int) -> dict[str, Any]:
    """All weights of four members, once; the nets themselves are not needed for it."""
    layers = []
    for member in range(4):
        with seeding.isolated(0, "bench"), torch.device("meta"):
            net = WideResNet(depth=28, width=width).build(_IN_SHAPE, 100)
        layers += layers_of(net, member)
    plan = make_plan(layers, depth_bins(layers, 4), budget=budget)
    bank = TemplateBank(
        plan,
        ties.private(plan),
        initialisation="fan_in",
        generator=seeding.torch_generator(0, "bench"),
    )
    with torch.no_grad():
        num_bytes = sum(weight.nbytes for weight in bank.compose())
        taken = [cpu_seconds(bank.compose) for _ in range(min(rounds, 5))]
    found = machine.spread(taken)
    return {
        "what": f"compose.4_wrn_28_{width}",
        "ms": 1000 * found["median"],
        "ms, fastest": 1000 * found["fastest"],
        "ms, slowest": 1000 * found["slowest"],
        "template bytes": 4 * plan.num_weights,
        "composed bytes": num_bytes,
    }


def _context() -> Context:
    return noise_context(64, _IN_SHAPE, mean=0.5, std=0.25)
