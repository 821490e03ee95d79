import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.methods.pwfn.literal import literal_wfn
from tuneparts.methods.pwfn import _running_mean
from tuneparts.methods.pwfn._centres import rounding_grid
from tuneparts.methods.pwfn._gaussian import Gaussians
from tuneparts.methods.pwfn._quantisers import channels_of, fix, pull, quota, rounded
from tuneparts.methods.pwfn._running_mean import attraction
from tuneparts.methods.pwfn._threshold import Clustering
from tuneparts.methods.pwfn.config import (
    FRACTIONS,
    Pwfn,
    _Clusters,
    _KMeans,
    _Nearest,
    _Quantiser,
    _Uniform,
    _Wfn,
)

ALL: list[_Quantiser] = [
    _Clusters(),
    _Clusters(monotone=True),
    _Clusters(rule="running_mean", monotone=True),
    _Clusters(distance="relative", delta=0.01),
    _Nearest(),
    _Nearest(max_order=1, zero_rule=False),
    _KMeans(num_values=7),
    _Wfn(),
]


def drawn(seed: int, num: int = 150) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    mu = torch.from_numpy(rng.normal(0, 0.2, num).astype(np.float32))
    sigma = torch.from_numpy(rng.uniform(0, 0.01, num).astype(np.float32))
    return mu, sigma


def fixed_anew(
    quantiser: _Quantiser, mu: Tensor, sigma: Tensor, num_fixed: int, rounds_left: int
) -> Clustering:
    none = torch.zeros_like(mu, dtype=torch.bool)
    return fix(quantiser, mu, sigma, none, num_fixed=num_fixed, rounds_left=rounds_left)


@pytest.mark.parametrize("quantiser", ALL, ids=repr)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_quotas_are_exact_over_rounds(quantiser: _Quantiser, seed: int) -> None:
    mu, sigma = drawn(seed)
    fixed = torch.zeros_like(mu, dtype=torch.bool)
    for left, num in ((2, 40), (1, 100), (0, 150)):
        result = fix(quantiser, mu, sigma, fixed, num_fixed=num, rounds_left=left)
        assert result.fixed_N.sum() == num
        free = ~result.fixed_N
        assert torch.equal(result.mu_N[free], mu[free])
        assert torch.equal(result.sigma_N[free], sigma[free])
        # What trains between two rounds is what is free.
        mu = torch.where(result.fixed_N, result.mu_N, result.mu_N + 0.003)
        sigma, fixed = result.sigma_N, result.fixed_N


MONOTONE = [q for q in ALL if isinstance(q, _Nearest) or getattr(q, "monotone", False)]


@pytest.mark.parametrize("quantiser", MONOTONE, ids=repr)
def test_monotone_quantisers_keep_what_is_fixed(quantiser: _Quantiser) -> None:
    mu, sigma = drawn(0)
    first = fixed_anew(quantiser, mu, sigma, 60, 1)
    moved = torch.where(first.fixed_N, first.mu_N, first.mu_N + 0.01)
    second = fix(quantiser, moved, first.sigma_N, first.fixed_N, num_fixed=150, rounds_left=0)
    assert second.fixed_N[first.fixed_N].all()
    assert torch.equal(second.mu_N[first.fixed_N], first.mu_N[first.fixed_N])


def test_clustering_anew_may_move_what_was_fixed() -> None:
    # 30/128 is on the grid, but a wide deviation lets 1/4 take it along.
    mu = torch.cat([torch.full((5,), 30 / 128), torch.full((20,), 0.26)])
    sigma = torch.full((25,), 0.02)
    fixed = torch.arange(25) < 5
    anew = fix(_Clusters(), mu, sigma, fixed, num_fixed=25, rounds_left=0)
    kept = fix(_Clusters(monotone=True), mu, sigma, fixed, num_fixed=25, rounds_left=0)
    assert torch.equal(kept.mu_N[:5], mu[:5])
    assert (anew.mu_N == 0.25).all()


def test_nearest_is_nearest() -> None:
    mu, sigma = drawn(3, 400)
    plain = _Nearest(bits=5, max_order=2, zero_rule=False)
    result = fixed_anew(plain, mu, sigma, 400, 0)
    grid = rounding_grid(5, 2, mu.abs().max().item())
    best = (mu.double()[:, None] - grid).abs().min(dim=1).values
    torch.testing.assert_close((result.mu_N.double() - mu).abs(), best)
    ruled = fixed_anew(_Nearest(bits=5, max_order=2), mu, sigma, 400, 0)
    small = mu.abs() < 2.0**-5
    assert not ruled.mu_N[small].any()
    assert torch.equal(ruled.mu_N[~small], result.mu_N[~small])


def test_nearest_fixes_the_closest_first() -> None:
    mu, sigma = drawn(4)
    everything = fixed_anew(_Nearest(), mu, sigma, 150, 0)
    some = fixed_anew(_Nearest(), mu, sigma, 50, 1)
    moves = (everything.mu_N - mu).abs()
    assert moves[some.fixed_N].max() <= moves[~some.fixed_N].min()


@pytest.mark.parametrize("change", [{"delta": 0.3}, {"bits": 4}, {"max_order": 1}])
def test_wfn_fields_matter(change: dict[str, Any]) -> None:
    mu, sigma = drawn(7)
    usual = fixed_anew(_Wfn(), mu, sigma, 150, 0)
    other = fixed_anew(_Wfn(**change), mu, sigma, 150, 0)
    assert not torch.equal(usual.mu_N, other.mu_N)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("rounds_left", "share"), [(9, 0.3), (4, 0.9), (0, 1.0)])
def test_wfn_is_what_the_released_code_does(seed: int, rounds_left: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    num = 200
    spread = rng.choice([0.004, 0.05, 0.4], num)
    mu = torch.from_numpy((rng.normal(0, 1, num) * spread).astype(np.float32))
    mu[:3] = torch.tensor([0.0, 0.25, -0.25])
    num_fixed = math.ceil(share * num)
    found = fixed_anew(_Wfn(delta=0.015), mu, torch.ones(num), num_fixed, rounds_left)
    expected, fixed = literal_wfn(
        mu.tolist(), num_fixed, delta=0.015, rounds=10, number=9 - rounds_left
    )
    assert found.fixed_N.tolist() == fixed
    assert found.mu_N.tolist() == pytest.approx(expected, abs=1e-9)


def test_wfn_clusters_anew_in_each_round() -> None:
    mu = torch.cat([torch.full((5,), 0.24), torch.full((50,), 0.25)])
    fixed = torch.arange(55) < 5  # at a value that a loose bound found
    found = fix(_Wfn(delta=0.05), mu, mu, fixed, num_fixed=55, rounds_left=0)
    assert (found.mu_N == 0.25).all()


def _layers() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 2), nn.ConvTranspose2d(3, 4, 2), nn.Linear(5, 6))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_uniform_rounds_each_channel_to_its_own_scale(bits: int) -> None:
    net = _layers()
    gaussians = Gaussians(net, [name for name, _ in net.named_parameters()])
    channels = channels_of(gaussians, net)
    assert len(channels.is_bias_G) == 3 + 1 + 4 + 1 + 6 + 1
    parts = gaussians.parts(rounded(_Uniform(bits=bits), gaussians.means(), channels))
    most = 2 ** (bits - 1) - 1
    for layer, kernel in (("0", 3), ("1", 4), ("2", 6)):
        side = 1 if layer == "1" else 0
        own = gaussians.mus[f"{layer}.weight"].detach().movedim(side, 0).reshape(kernel, -1)
        got = parts[f"{layer}.weight"].movedim(side, 0).reshape(kernel, -1)
        for row, found in zip(own, got, strict=True):
            scale = row.abs().max() / most
            torch.testing.assert_close(found, (row / scale).round() * scale)
            assert len(found.unique()) <= 2 * most + 1
    bias = gaussians.mus["2.bias"].detach()
    scale = bias.abs().max() / max(most, 127)
    torch.testing.assert_close(parts["2.bias"], (bias / scale).round() * scale)
    whole = torch.cat([value.flatten() for value in parts.values()])
    torch.testing.assert_close(rounded(_Uniform(bits=bits), whole, channels), whole)


def test_zero_channels_stay_zero() -> None:
    net = nn.Linear(3, 2)
    nn.init.zeros_(net.weight)
    gaussians = Gaussians(net, ["weight"])
    found = rounded(_Uniform(), gaussians.means(), channels_of(gaussians, net))
    assert not found.any()


def test_the_pull_of_wfn_is_a_share_of_the_loss() -> None:
    mu, _ = drawn(9)
    centres, loss = torch.tensor([-0.25, 0.0, 0.125]), torch.tensor(1.7)
    term, slope = attraction(mu, centres, temperature=0.05, zero_below=2.0**-7)
    pulled = pull(_Wfn(ratio=0.3), mu, centres, loss)
    # As a term of the loss: what it is scaled by makes it 0.3 of the task's.
    torch.testing.assert_close(pulled, slope * (0.3 * 1.7 / term))
    assert not torch.equal(pulled, pull(_Wfn(ratio=0.3, temperature=0.5), mu, centres, loss))


def test_weights_at_their_centres_are_not_pulled() -> None:
    centres = torch.tensor([-0.25, 0.0, 0.125])
    mu = torch.tensor([0.125, -0.25, 0.001])
    pulled = pull(_Wfn(temperature=1e-3), mu, centres, torch.tensor(50.0))
    assert not pulled.any()


CENTRES = [-0.5, -0.0625, 0.0, 0.03125, 0.25, 0.75]


def naive(weights: list[float], centres: list[float], temperature: float, zero: float) -> float:
    """Weight by weight and centre by centre, as the formula is printed."""
    total = 0.0
    for weight in weights:
        if abs(weight) < zero:
            continue
        distances = [abs(weight - centre) / abs(weight) for centre in centres]
        shares = [math.exp(-distance / temperature) for distance in distances]
        total += sum(s * d for s, d in zip(shares, distances, strict=True)) / sum(shares)
    return total / len(weights)


weights_lists = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(weights_lists, st.sampled_from([0.05, 0.2, 1.0]), st.sampled_from([2.0**-7, 0.1]))
def test_the_term_is_the_printed_one(weights: list[float], temperature: float, zero: float) -> None:
    got, _ = attraction(
        torch.tensor(weights, dtype=torch.float64),
        torch.tensor(CENTRES, dtype=torch.float64),
        temperature=temperature,
        zero_below=zero,
    )
    assert got.item() == pytest.approx(naive(weights, CENTRES, temperature, zero), abs=1e-12)


def some_weights() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, generator=generator, dtype=torch.float64) * 0.3


def test_the_gradient_is_that_of_finite_differences() -> None:
    weights = some_weights().tolist()
    centres = torch.tensor(CENTRES, dtype=torch.float64)
    _, slope = attraction(
        torch.tensor(weights, dtype=torch.float64), centres, temperature=0.05, zero_below=2.0**-7
    )
    step = 1e-6
    for place in range(len(weights)):
        up, down = list(weights), list(weights)
        up[place] += step
        down[place] -= step
        difference = naive(up, CENTRES, 0.05, 2.0**-7) - naive(down, CENTRES, 0.05, 2.0**-7)
        assert slope[place].item() == pytest.approx(difference / (2 * step), rel=1e-4, abs=1e-7)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = torch.tensor(CENTRES, dtype=torch.float64)
    whole = attraction(some_weights(), centres, temperature=0.05, zero_below=2.0**-7)
    monkeypatch.setattr(_running_mean, "BLOCK", 3 * len(CENTRES))
    in_blocks = attraction(some_weights(), centres, temperature=0.05, zero_below=2.0**-7)
    torch.testing.assert_close(in_blocks[0], whole[0])
    assert torch.equal(in_blocks[1], whole[1])


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 10**5),
    st.floats(0, 0.9),
    st.floats(0, 0.09),
    st.floats(0, 3),
    st.integers(1, 12),
)
def test_the_budget_is_cut_without_loss(
    steps: int, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> None:
    rounds = Pwfn(
        steps=steps,
        pretrain=pretrain,
        warmup=warmup,
        first_round=first_round,
        fractions=tuple(number / num_rounds for number in range(1, num_rounds + 1)),
    ).rounds()
    edges = [0, rounds.pretrain_end, rounds.warmup_end, *rounds.ends]
    assert edges == sorted(edges)
    assert len(rounds.ends) == num_rounds
    assert rounds.ends[-1] == steps


def test_the_published_schedule() -> None:
    # 27.05 epochs of 176 steps: a twentieth of one, then nine rounds of three.
    rounds = Pwfn(steps=round(27.05 * 176), pretrain=0).rounds()
    assert rounds.ends[0] == round(0.05 * 176)
    lengths = [b - a for a, b in zip(rounds.ends, rounds.ends[1:], strict=False)]
    assert all(abs(length - 3 * 176) <= 1 for length in lengths)
    assert FRACTIONS[-1] == 1


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**8), st.integers(0, 1000))
def test_quotas_are_exact_in_decimal(num: int, thousandths: int) -> None:
    assert quota(num, thousandths / 1000) == math.ceil(Fraction(thousandths, 1000) * num)
    assert quota(100, 0.07) == 7
