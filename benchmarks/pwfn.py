"""A round of fixing weights, and a training step with Gaussian weights.

Clustering is compared with the literal form of the authors' rule, a matrix of all distances for
each pick, in the same run and with equal results. A training step is compared with that of
standard training of the same net.
"""

import math
import resource
import time
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import tuneparts as tp
from benchmarks.measure import cpu_seconds, cpu_turns, noise_context, one_thread, spread
from benchmarks.results import Result, Row, result, tell
from tuneparts.core import seeding
from tuneparts.methods.pwfn import _sigma, _threshold

_FLOATS = npt.NDArray[np.float64]
_SGD = tp.Sgd(lr=1e-3, weight_decay=1e-4)
_BITS, _MAX_ORDER, _DELTA, _GROWTH = 7, 4, 1.0, 2.0
"""The defaults of `threshold.cluster`, which the literal form knows no others than."""


def run(*, quick: bool) -> Result:
    """Measure training steps, a full round by number of weights, and its literal form."""
    powers = (3, 4) if quick else (5, 6, 7)
    with one_thread():
        steps = [_step_row(*case) for case in _nets(quick=quick)]
        literal = _literal_row(powers[0])
        rows = [*steps, literal, *(_round_row(one, rounds=1 if quick else 3) for one in powers)]
    for row in rows:
        tell(row)
    return result("pwfn", {row["what"]: row["ratio"] for row in (*steps, literal)}, rows)


def _nets(*, quick: bool) -> list[tuple[str, tp.nets.NetConfig, int, int]]:
    """Name, net, batch size and rounds: first where few uses share the draw of a weight."""
    if quick:
        return [
            ("mlp", tp.nets.Mlp(widths=(16,)), 8, 2),
            ("resnet18", tp.nets.ResNet18(width=4), 8, 2),
        ]
    return [
        ("mlp", tp.nets.Mlp(widths=(512, 512)), 50, 101),
        ("resnet18_width_64_batch_8", tp.nets.ResNet18(width=64), 8, 9),
        ("resnet18_width_64_batch_32", tp.nets.ResNet18(width=64), 32, 5),
        ("resnet18_width_16_batch_128", tp.nets.ResNet18(width=16), 128, 7),
    ]


def _step_row(name: str, net: tp.nets.NetConfig, batch_size: int, rounds: int) -> Row:
    context = noise_context(batch_size, (3, 32, 32), mean=0.5, std=0.25)
    shared = {"net": net, "batch_size": batch_size, "steps": 10**6, "interval": 1}
    plain: Any = tp.Standard(**shared, optimiser=_SGD).build(context)
    ours: Any = tp.Pwfn(**shared, pretrain=0, finetune=_SGD, first_round=0).build(context)
    # Ours fixes its first round in the first step, which is not timed.
    turns = cpu_turns({"plain": plain.step, "gaussian": ours.step}, rounds=rounds)
    seconds = {side: spread(own) for side, own in turns.items()}
    return {
        "what": f"gaussian_step.{name}",
        "weights": len(ours.gaussians.sigma),
        "seconds": seconds["gaussian"],
        "plain_seconds": seconds["plain"],
        "ratio": seconds["gaussian"]["median"] / seconds["plain"]["median"],
    }


def _round_row(power: int, *, rounds: int) -> Row:
    num = 10**power
    mu, deviations = _weights(num)
    peak_before, wall = _peak_bytes(), time.perf_counter()
    seconds = [cpu_seconds(lambda: _threshold.cluster(mu, deviations, num)) for _ in range(rounds)]
    wall, peak = (time.perf_counter() - wall) / rounds, _peak_bytes() - peak_before
    clustering = _threshold.cluster(mu, deviations, num)
    assert bool(clustering.fixed_N.all()), "a full round must fix every weight"
    return {
        "what": f"round.1e{power}",
        "weights": num,
        "seconds": spread(seconds),
        "wall_seconds": wall,
        "stages": len(clustering.stages),
        "unique": len(torch.unique(clustering.mu_N)),
        "added_peak_bytes_per_weight": round(peak / num, 1),
    }


def _literal_row(power: int) -> Row:
    num = 10**power
    mu, deviations = _weights(num)
    ours = _threshold.cluster(mu, deviations, num)
    mu_64, sigma_64 = mu.double().numpy(), deviations.double().numpy()
    # Ours takes turns with the one long run of the other: before it and after it.
    before = cpu_seconds(lambda: _threshold.cluster(mu, deviations, num))
    start = time.process_time()
    out_mu, out_sigma = _literal_cluster(mu_64, sigma_64, num)
    literal_seconds = time.process_time() - start
    after = cpu_seconds(lambda: _threshold.cluster(mu, deviations, num))
    assert np.array_equal(ours.mu_N.double().numpy(), out_mu), "both fix weights to equal values"
    assert np.allclose(ours.sigma_N.numpy(), out_sigma, rtol=1e-5, atol=1e-9)
    seconds = spread([before, after])
    return {
        "what": f"reference_over_ours.1e{power}",
        "weights": num,
        "seconds": seconds,
        "literal_seconds": literal_seconds,
        "ratio": literal_seconds / seconds["median"],
    }


def _literal_cluster(mu_N: _FLOATS, sigma_N: _FLOATS, quota: int) -> tuple[_FLOATS, _FLOATS]:
    """Cluster by the rule of `threshold.cluster` as it is stated: every distance for every pick."""
    out_mu_N, out_sigma_N = mu_N.copy(), sigma_N.copy()
    scale_N = np.maximum(sigma_N, _threshold.SIGMA_FLOOR)
    fixed_N = np.zeros(len(mu_N), dtype=bool)
    order, counter, delta = 1, 1, _DELTA
    while quota > 0:
        centres = _literal_centres(order, float(np.abs(mu_N[~fixed_N]).max()))
        while quota > 0 and len(centres):
            distance_KN = np.abs(centres[:, None] - mu_N) / scale_N
            distance_KN[np.ix_(centres == 0, np.abs(mu_N) < 2.0**-_BITS)] = 0
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
        if order < _MAX_ORDER and counter % 2:
            order += 1
        else:
            delta *= _GROWTH
        counter += 1
    return out_mu_N, out_sigma_N


def _literal_centres(order: int, largest: float) -> _FLOATS:
    """Sums of `order` powers of two or zeros, and their negatives: (K,), ascending."""
    powers = [0.0, *(2.0**power for power in range(-_BITS, math.ceil(math.log2(largest))))]
    sums = {sum(terms) for terms in combinations_with_replacement(powers, order)}
    positive = sorted(value for value in sums if 0 < value <= largest)
    return np.array([-value for value in reversed(positive)] + [0.0, *positive])


def _weights(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw means and deviations like those of a pretrained net: (num,) each."""
    generator = seeding.torch_generator(0, "bench pwfn", num)
    # Most weights of a net are small; the few of its narrow layers reach beyond 1.
    is_wide = torch.rand(num, generator=generator) < 0.01
    mu = torch.randn(num, generator=generator) * torch.where(is_wide, 0.4, 0.05)
    return mu, _sigma.initial(mu)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
