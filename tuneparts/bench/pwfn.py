"""Bench of a round of fixing weights, and of a training step with Gaussian weights.

Clustering is compared with the literal form of the authors' rule, a matrix of all distances for
each pick, in the same run and with equal results. A training step is compared with that of
standard training of the same net. One thread; time is CPU time of this process, so that other
work on the machine counts less.
"""

import math
import resource
import time
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tuneparts import seeding
from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import one_thread
from tuneparts.data.task import Examples, Task
from tuneparts.models import Mlp, ResNet18
from tuneparts.models.net import NetConfig
from tuneparts.pwfn import sigma, threshold
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.pwfn.learner import PwfnLearner
from tuneparts.pwfn.threshold import SIGMA_FLOOR, Clustering
from tuneparts.training.learner import Context
from tuneparts.training.loop import LoopLearner
from tuneparts.training.optimisers import OptimiserConfig

_FLOATS = npt.NDArray[np.float64]
_SGD = OptimiserConfig(kind="sgd", lr=1e-3, weight_decay=1e-4)


def run(*, quick: bool = False) -> dict[str, Any]:
    """Measure a full round by number of weights, its literal form, and a training step."""
    sizes = (10**3, 10**4) if quick else (10**5, 10**6, 10**7)
    with one_thread():
        rows = [_round_row(size, rounds=1 if quick else 3) for size in sizes]
        literal = _literal_row(sizes[0])
        steps = [_step_row(*case) for case in _nets(quick=quick)]
    ratios = {f"reference_over_ours.{_power(sizes[0])}": literal["ratio"]}
    return {
        "bench": "pwfn",
        "ratios": ratios | {step["what"]: step["ratio"] for step in steps},
        "rows": [*rows, literal, *steps],
        "machine": machine.describe(),
    }


def literal_candidates(bits: int, order: int, largest: float) -> _FLOATS:
    """Sums of `order` powers of two or zeros, and their negatives: (K,), ascending."""
    powers = [0.0]
    if largest > 0:
        powers += [2.0**power for power in range(-bits, math.ceil(math.log2(largest)))]
    sums = {sum(terms) for terms in combinations_with_replacement(powers, order)}
    positive = sorted(value for value in sums if 0 < value <= largest)
    return np.array([-value for value in reversed(positive)] + [0.0, *positive])


def literal_cluster(
    mu_N: _FLOATS,
    sigma_N: _FLOATS,
    num_to_fix: int,
    *,
    bits: int = 7,
    max_order: int = 4,
    delta: float = 1.0,
    growth: float = 2.0,
    zero_rule: bool = True,
) -> tuple[_FLOATS, _FLOATS, npt.NDArray[np.bool_], list[tuple[int, float, int]]]:
    """Cluster by the rule of `threshold.cluster` as it is stated: every distance for every pick.

    Returns:
        means, deviations, which are fixed, and (order, delta, number fixed) of each stage.
    """
    out_mu_N, out_sigma_N = mu_N.copy(), sigma_N.copy()
    scale_N = np.maximum(sigma_N, SIGMA_FLOOR)
    fixed_N = np.zeros(len(mu_N), dtype=bool)
    stages: list[tuple[int, float, int]] = []
    order, counter, quota = 1, 1, num_to_fix
    while quota > 0:
        centres = literal_candidates(bits, order, float(np.abs(mu_N[~fixed_N]).max()))
        num_before = fixed_N.sum()
        while quota > 0 and len(centres):
            distance_KN = np.abs(centres[:, None] - mu_N) / scale_N
            if zero_rule:
                distance_KN[np.ix_(centres == 0, np.abs(mu_N) < 2.0**-bits)] = 0
            distance_KN[:, fixed_N] = np.inf
            captured_K = (distance_KN <= delta).sum(axis=1)
            winner = int(captured_K.argmax())
            if captured_K[winner] == 0:
                break
            closest = np.argsort(distance_KN[winner], kind="stable")
            taken = closest[: min(captured_K[winner], quota)]
            out_mu_N[taken] = centres[winner]
            out_sigma_N[taken] = mu_N[taken].std()
            fixed_N[taken] = True
            centres = np.delete(centres, winner)
            quota -= len(taken)
        stages.append((order, delta, int(fixed_N.sum() - num_before)))
        if order < max_order and counter % 2:
            order += 1
        else:
            delta *= growth
        counter += 1
    return out_mu_N, out_sigma_N, fixed_N, stages


def _weights(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw means and deviations like those of a pretrained net: (num,) each."""
    generator = seeding.torch_generator(0, "bench pwfn", num)
    # Most weights of a net are small; the few of its narrow layers reach beyond 1.
    is_wide = torch.rand(num, generator=generator) < 0.01
    mu = torch.randn(num, generator=generator) * torch.where(is_wide, 0.4, 0.05)
    return mu, sigma.initial(mu)


def _round_row(num: int, *, rounds: int) -> dict[str, Any]:
    mu, deviations = _weights(num)
    peak_before, wall = _peak_bytes(), time.perf_counter()
    seconds, results = zip(
        *(_timed(lambda: threshold.cluster(mu, deviations, num)) for _ in range(rounds)),
        strict=True,
    )
    wall = time.perf_counter() - wall
    clustering: Clustering = results[0]
    if not bool(clustering.fixed_N.all()):
        raise AssertionError("a full round must fix every weight")
    return {
        "what": f"round.{_power(num)}",
        "weights": num,
        "seconds": machine.spread(seconds),
        "wall_seconds": wall / rounds,
        "stages": len(clustering.stages),
        "unique": len(torch.unique(clustering.mu_N)),
        "added_peak_bytes_per_weight": round((_peak_bytes() - peak_before) / num, 1),
    }


def _literal_row(num: int) -> dict[str, Any]:
    mu, deviations = _weights(num)
    mu_64, sigma_64 = mu.double().numpy(), deviations.double().numpy()
    # Ours takes turns with the one long run of the other: before it and after it.
    before = _timed(lambda: threshold.cluster(mu, deviations, num))
    literal_seconds, literal = _timed(lambda: literal_cluster(mu_64, sigma_64, num))
    after = _timed(lambda: threshold.cluster(mu, deviations, num))
    ours: Clustering = before[1]
    out_mu, out_sigma, fixed, _ = literal
    is_equal = (
        np.array_equal(ours.mu_N.double().numpy(), out_mu)
        and np.array_equal(ours.fixed_N.numpy(), fixed)
        and np.allclose(ours.sigma_N.numpy(), out_sigma, rtol=1e-5, atol=1e-9)
    )
    if not is_equal:
        raise AssertionError("both forms must fix the same weights to the same values")
    seconds = machine.spread([before[0], after[0]])
    return {
        "what": f"reference_over_ours.{_power(num)}",
        "weights": num,
        "seconds": seconds,
        "literal_seconds": literal_seconds,
        "ratio": literal_seconds / seconds["median"],
    }


def _nets(*, quick: bool) -> list[tuple[str, NetConfig, int, int]]:
    """Name, net, batch size and rounds of each comparison of steps; the small batches are adverse.

    Few passes of examples share what each draw of the weights costs in a small batch, and an MLP
    uses each weight once for each example.
    """
    if quick:
        return [("mlp", Mlp(widths=(16,)), 8, 2), ("resnet18", ResNet18(width=4), 8, 2)]
    return [
        ("mlp", Mlp(widths=(512, 512)), 50, 101),
        ("resnet18_width_16_batch_128", ResNet18(width=16), 128, 7),
        ("resnet18_width_64_batch_32", ResNet18(width=64), 32, 5),
        ("resnet18_width_64_batch_8", ResNet18(width=64), 8, 9),
    ]


def _step_row(name: str, net: NetConfig, batch_size: int, rounds: int) -> dict[str, Any]:
    context = Context(task=_task(batch_size), seed=0, device=torch.device("cpu"))
    shared = {"net": net, "batch_size": batch_size, "passes": 10**6, "interval": 1}
    plain = StandardConfig(**shared, optimiser=_SGD).build(context)
    ours = PwfnConfig(**shared, pretrain=0, finetune=_SGD, first_round=0).build(context)
    assert isinstance(plain, LoopLearner)
    assert isinstance(ours, PwfnLearner)
    ways: dict[str, Callable[[], float]] = {
        "plain": lambda: _timed(plain.step)[0],
        "gaussian": lambda: _timed(ours.step)[0],
    }
    for way in ways.values():  # the first step allocates state; ours fixes its first round in it
        way()
    seconds = {
        name: machine.spread(values)
        for name, values in machine.interleave(ways, rounds=rounds).items()
    }
    return {
        "what": f"gaussian_step.{name}",
        "weights": len(ours.gaussians.sigma),
        "seconds": seconds["gaussian"],
        "plain_seconds": seconds["plain"],
        "ratio": seconds["gaussian"]["median"] / seconds["plain"]["median"],
    }


def _task(num: int) -> Task:
    rng = seeding.numpy_generator(0, "bench pwfn", "images")
    images = rng.integers(0, 256, size=(num, 3, 32, 32), dtype=np.uint8)
    examples = Examples(images, rng.integers(0, 10, size=num))
    none = Examples(images[:0], examples.labels[:0])
    return Task("noise", examples, none, examples, 10, (0.5,) * 3, (0.25,) * 3)


def _timed(way: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = way()
    return time.process_time() - start, result


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _power(num: int) -> str:
    return f"1e{round(math.log10(num))}"
