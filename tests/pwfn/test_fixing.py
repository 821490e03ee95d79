import copy
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.pwfn import fixing, sigma
from tuneparts.pwfn.fixing import FRACTIONS, cut, quota
from tuneparts.pwfn.gaussian import FLOOR, sampled, tensors, to_gaussian

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


@pytest.fixture
def gaussian(net: nn.Sequential) -> nn.Sequential:
    to_gaussian(net)
    sigma.initialise(net, 0.02)
    return net


@pytest.mark.parametrize("name", OPTIMISERS)
def test_fixed_entries_are_bit_identical_and_free_ones_move(
    gaussian: nn.Sequential, x_BCHW: Tensor, name: str
) -> None:
    optimiser = OPTIMISERS[name](gaussian.parameters())
    noise = torch.Generator().manual_seed(0)

    def step() -> None:
        with sampled(gaussian, noise):
            loss = gaussian(x_BCHW).square().mean()
        optimiser.zero_grad()
        loss.backward()
        fixing.mask_gradients(gaussian)
        with fixing.held(gaussian):
            optimiser.step()

    step()  # momentum of entries that are fixed only later
    mask_N = torch.arange(len(fixing.means(gaussian))) % 3 == 0
    mu_N, sigma_N = fixing.means(gaussian).round(decimals=1), fixing.sigmas(gaussian)
    sigma_N[mask_N] = 0.0
    fixing.write(gaussian, mu_N, sigma_N, mask_N)
    for _ in range(4):
        step()
    assert torch.equal(fixing.means(gaussian)[mask_N], mu_N[mask_N])
    assert torch.equal(fixing.sigmas(gaussian)[mask_N], sigma_N[mask_N])
    moved = fixing.means(gaussian)[~mask_N] != mu_N[~mask_N]
    assert moved.double().mean() > 0.95
    assert (fixing.sigmas(gaussian)[~mask_N] >= FLOOR).all()


def test_free_deviations_stay_at_the_floor_or_above(gaussian: nn.Sequential) -> None:
    with fixing.held(gaussian), torch.no_grad():
        for tensor in tensors(gaussian).values():
            tensor.sigma.fill_(-1.0)
    assert (fixing.sigmas(gaussian) == FLOOR).all()


def test_write_is_the_inverse_of_reading(gaussian: nn.Sequential) -> None:
    expected = copy.deepcopy(gaussian.state_dict())
    mu_N, sigma_N, fixed_N = (
        fixing.means(gaussian),
        fixing.sigmas(gaussian),
        fixing.fixed(gaussian),
    )
    fixing.write(gaussian, -mu_N, 2 * sigma_N, ~fixed_N)
    assert torch.equal(fixing.means(gaussian), -mu_N)
    assert fixing.fixed(gaussian).all()
    fixing.write(gaussian, mu_N, sigma_N, fixed_N)
    for name, value in gaussian.state_dict().items():
        assert torch.equal(value, expected[name]), name
    num = sum(tensor.mu.numel() for tensor in tensors(gaussian).values())
    assert len(mu_N) == num


def test_masked_gradients_are_zero_where_fixed_only(
    gaussian: nn.Sequential, x_BCHW: Tensor
) -> None:
    gaussian[6].weight.fixed[0] = True
    with sampled(gaussian, torch.Generator().manual_seed(0)):
        gaussian(x_BCHW).square().sum().backward()
    before = gaussian[6].weight.mu.grad.clone()
    fixing.mask_gradients(gaussian)
    assert not gaussian[6].weight.mu.grad[0].any()
    assert not gaussian[6].weight.sigma.grad[0].any()
    assert torch.equal(gaussian[6].weight.mu.grad[1:], before[1:])


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 10**5),
    st.floats(0, 0.9),
    st.floats(0, 0.09),
    st.floats(0, 3),
    st.integers(1, 12),
)
def test_the_budget_is_cut_without_loss(
    passes: int, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> None:
    rounds = cut(
        passes, pretrain=pretrain, warmup=warmup, first_round=first_round, num_rounds=num_rounds
    )
    edges = [0, rounds.pretrain_end, rounds.warmup_end, *rounds.ends]
    assert edges == sorted(edges)
    assert len(rounds.ends) == num_rounds
    assert rounds.ends[-1] == passes


def test_the_published_schedule() -> None:
    # 27.05 epochs of 176 steps: a twentieth of one, then nine rounds of three.
    rounds = cut(round(27.05 * 176), pretrain=0, warmup=0, first_round=1 / 60, num_rounds=10)
    assert rounds.ends[0] == round(0.05 * 176)
    lengths = [b - a for a, b in zip(rounds.ends, rounds.ends[1:], strict=False)]
    assert all(abs(length - 3 * 176) <= 1 for length in lengths)
    assert FRACTIONS[-1] == 1


def test_one_round_without_a_relative_length() -> None:
    assert cut(10, pretrain=0.5, warmup=0, first_round=0, num_rounds=1).ends == (10,)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**8), st.integers(0, 1000))
def test_quotas_are_exact_in_decimal(num: int, thousandths: int) -> None:
    assert quota(num, thousandths / 1000) == math.ceil(Fraction(thousandths, 1000) * num)
    assert quota(100, 0.07) == 7
