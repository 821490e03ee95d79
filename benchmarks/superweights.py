"""Composed weights: a training step compared with one with ordinary weights, and composing alone.

Both sides of a step are the learners themselves on the same net, batch and optimiser.
"""

from typing import Any

import torch

import tuneparts as tp
from benchmarks import measure
from benchmarks.results import Result, Row, result, tell
from tuneparts.core import seeding
from tuneparts.methods.superweights import _ties
from tuneparts.methods.superweights._allocation import make_plan
from tuneparts.methods.superweights._bank import TemplateBank
from tuneparts.methods.superweights._clusters import depth_bins, layers_of

_NETS = {
    "wrn_28_2": tp.nets.WideResNet(depth=28, width=2),
    "wrn_16_2": tp.nets.WideResNet(depth=16, width=2),
}
_IN_SHAPE = (3, 32, 32)
_OPTIMISER = {"kind": "sgd", "lr": 0.1, "nesterov": True, "weight_decay": 5e-4}


def run(*, quick: bool) -> Result:
    """Ratios of a step with composed weights to one with ordinary weights, and composing alone."""
    batch_size, rounds = (2, 3) if quick else (32, 15)
    width, budget = (2, 1_500_000) if quick else (10, 36_500_000)
    with measure.one_thread():
        rows = [_step_row(*net, batch_size=batch_size, rounds=rounds) for net in _NETS.items()]
        rows.append(_compose_row(width, budget, rounds=min(rounds, 5)))
    for row in rows:
        tell(row)
    return result("superweights", {row["what"]: row["ratio"] for row in rows[:-1]}, rows)


def _step_row(name: str, net: tp.nets.WideResNet, *, batch_size: int, rounds: int) -> Row:
    common: dict[str, Any] = {"optimiser": _OPTIMISER, "batch_size": batch_size}
    common |= {"steps": 10**6, "interval": 10**6}
    # Clusters of bins and private coefficients from the start: no stage but the last.
    sharing = {"clusters": "depth", "coefficients": "private"}
    learners: dict[str, Any] = {
        "standard": tp.Standard(net=net, **common),
        "ours": tp.SuperWeights(members=(net,), sharing=sharing, **common),
    }
    context = measure.noise_context(64, _IN_SHAPE, mean=0.5, std=0.25)
    steps = {side: config.build(context).step for side, config in learners.items()}
    seconds = measure.cpu_turns(steps, rounds=rounds)
    columns = measure.ratio_columns(seconds, "standard")
    return {"what": f"step.{name}", **columns, "batch": batch_size}


def _compose_row(width: int, budget: int, *, rounds: int) -> Row:
    """All weights of four members, once; the nets themselves are not needed for it."""
    layers = []
    for member in range(4):
        with seeding.isolated(0, "bench"), torch.device("meta"):
            net = tp.nets.WideResNet(depth=28, width=width).build(_IN_SHAPE, 100)
        layers += layers_of(net, member)
    plan = make_plan(layers, depth_bins(layers, 4), budget=budget)
    generator = seeding.torch_generator(0, "bench")
    bank = TemplateBank(plan, _ties.private(plan), initialisation="fan_in", generator=generator)
    with torch.no_grad():
        num_bytes = sum(weight.nbytes for weight in bank.compose())
        found = measure.spread([1000 * measure.cpu_seconds(bank.compose) for _ in range(rounds)])
    return {
        "what": f"compose.4_wrn_28_{width}",
        **{"ms" if key == "median" else f"ms, {key}": found[key] for key in found},
        "template bytes": 4 * plan.num_weights,
        "composed bytes": num_bytes,
    }
