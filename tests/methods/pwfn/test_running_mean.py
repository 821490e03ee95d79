from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.methods.pwfn.literal import literal_candidates, literal_prefix
from tuneparts.methods.pwfn._centres import nearest
from tuneparts.methods.pwfn._running_mean import cluster, prefix


def centres(order: int, largest: float) -> Tensor:
    return torch.from_numpy(literal_candidates(7, order, largest))


def literal_cluster(
    mu: list[float],
    sigma: list[float],
    quota: int,
    candidates: Callable[[int, float], Tensor],
    *,
    delta: float,
    max_order: int,
) -> tuple[list[float], list[float]]:
    """Algorithm by plain loops: elect, take a prefix, raise order, then delta, start over."""
    out, deviations = list(mu), list(sigma)
    free = list(range(len(mu)))
    while quota:
        order, bound = 1, delta
        while True:
            values = candidates(order, max(abs(mu[i]) for i in free)).tolist()
            zero = values.index(0.0)
            counts = [0] * len(values)
            for i in free:
                distances = [abs(mu[i] - c) for c in values]
                choice = distances.index(min(distances))
                counts[zero if abs(mu[i]) < 2.0**-7 else choice] += 1
            winner = counts.index(max(counts))
            distances = [
                0.0
                if winner == zero and abs(mu[i]) < 2.0**-7
                else abs(values[winner] - mu[i]) / max(sigma[i], 2.0**-20)
                for i in free
            ]
            taken = literal_prefix(distances, bound)[:quota]
            if taken:
                break
            order += 1
            if order > max_order:
                order, bound = 1, bound * 2
        spread = float(np.std([mu[free[position]] for position in taken]))
        for position in taken:
            out[free[position]], deviations[free[position]] = values[winner], spread
        quota -= len(taken)
        free = [i for position, i in enumerate(free) if position not in set(taken)]
    return out, deviations


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.3]), st.sampled_from([0.4, 1.0]))
def test_equal_to_plain_loops(seed: int, spread: float, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    num = int(rng.integers(1, 40))
    mu, sigma = rng.normal(0, spread, num), rng.uniform(0, 0.01, num)
    quota = int(np.ceil(num * fraction))
    ours = cluster(torch.from_numpy(mu), torch.from_numpy(sigma), quota, max_order=3)
    expected, deviations = literal_cluster(
        mu.tolist(), sigma.tolist(), quota, centres, delta=1.0, max_order=3
    )
    np.testing.assert_array_equal(ours.mu_N.numpy(), expected)
    np.testing.assert_allclose(ours.sigma_N.numpy(), deviations, rtol=1e-12, atol=1e-15)
    assert ours.fixed_N.sum() == quota
    assert sum(stage.num_fixed for stage in ours.stages) == quota


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0.1, 20))
def test_the_window_does_not_change_the_prefix(distances: list[float], delta: float) -> None:
    ours = prefix(torch.tensor(distances, dtype=torch.float64), delta)
    assert ours.tolist() == literal_prefix(distances, delta)


def test_nearest_by_brute_force() -> None:
    grid = centres(3, 1.0)
    mu = torch.linspace(-1.2, 1.2, 997, dtype=torch.float64)
    expected = (mu[:, None] - grid).abs().argmin(dim=1)
    assert torch.equal(nearest(mu, grid), expected)


def test_small_weights_do_not_pay_for_large_ones() -> None:
    mu = torch.cat([torch.zeros(1000), torch.tensor([1.4])]).double()
    result = cluster(mu, mu.abs(), 1001, delta=0.01)
    assert result.mu_N[-1] == 178 / 128
