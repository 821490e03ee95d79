import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.methods.pwfn import _sigma
from tuneparts.methods.pwfn._gaussian import FLOOR, Gaussians, Lent
from tuneparts.methods.pwfn._sigma import controlled, initialise, snapshot
from tuneparts.methods.pwfn.config import Pwfn

CEILING = 0.05
FLOATS = st.floats(-4, 4, width=32, allow_subnormal=False)


def literal_product(mu: float) -> float:
    """The product of relative distances to the powers of two around one weight."""
    a = abs(mu)
    up, down = 2.0 ** math.ceil(math.log2(a)), 2.0 ** math.floor(math.log2(a))
    return abs(a - up) / a * abs(a - down) / a


def generic(num: int = 4001) -> Tensor:
    return torch.randn(num, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", ["product", "upper"])
def test_against_the_printed_formula(form: _sigma.StartForm) -> None:
    mu = generic().double()
    product = np.array([literal_product(value) for value in mu.tolist()])
    upper = np.array([(2.0 ** math.ceil(math.log2(abs(v))) - abs(v)) / abs(v) for v in mu.tolist()])
    quartile = np.quantile(product if form == "product" else upper, 0.75)
    expected = np.clip(0.0025 * product / quartile, FLOOR, CEILING)
    np.testing.assert_allclose(_sigma.initial(mu, form).numpy(), expected, rtol=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.one_of(FLOATS, st.just(0.0), st.sampled_from([0.5, -2.0])), min_size=1))
def test_always_finite_and_bounded(values: list[float]) -> None:
    for form in ("product", "upper"):
        result = _sigma.initial(torch.tensor(values), form)  # type: ignore[arg-type]
        assert torch.isfinite(result).all()
        assert (result >= FLOOR).all()
        assert (result <= CEILING).all()
        assert (result[torch.tensor(values) == 0] == torch.tensor(FLOOR)).all()


def test_more_elements_than_torch_takes_quantiles_of() -> None:
    values = torch.tensor([1.25, 1.5, 1.75, 2.0]).repeat_interleave(2**22 + 1)
    assert _sigma._third_quartile(values) == 1.8125


CUTOFF = 0.05


@pytest.fixture
def pulled(net: nn.Sequential, gaussians: Gaussians, x_BCHW: Tensor) -> tuple[Gaussians, Tensor]:
    """Gaussians with the gradients of a draw, and the draw; one row above S, one fixed."""
    _sigma.initialise(gaussians)
    with torch.no_grad():
        gaussians.parts(gaussians.sigma)["6.weight"][0] = 0.06
    gaussians.parts(gaussians.fixed)["6.weight"][1] = True
    draw = gaussians.draw(torch.Generator().manual_seed(0))
    Lent(net, draw.values)(x_BCHW).square().sum().backward()
    gaussians.take_gradients(draw)
    return gaussians, draw.eps_N


def penalty(gaussians: Gaussians, sigma_N: Tensor, eps_N: Tensor, form: _sigma.PullForm) -> Tensor:
    """The regulariser as a term of the loss, as it is printed; draws are constants in it."""
    total = torch.zeros(())
    parts, eps, fixed = (gaussians.parts(v) for v in (sigma_N, eps_N, gaussians.fixed))
    for name in gaussians.names:
        if name.endswith("weight"):
            short = (CUTOFF - parts[name]).clamp(min=0) * ~fixed[name]
            drawn = eps[name].abs() / 2 * short.square()
            total = total + (short if form == "hinge" else drawn).sum()
    return total


@pytest.mark.parametrize("form", ["squared", "hinge"])
def test_as_a_loss_and_as_a_gradient_it_is_the_same(
    pulled: tuple[Gaussians, Tensor], form: _sigma.PullForm
) -> None:
    gaussians, eps_N = pulled
    leaf_N = gaussians.sigma.detach().clone().requires_grad_()
    (0.3 * penalty(gaussians, leaf_N, eps_N, form)).backward()
    expected = gaussians.sigma.grad + leaf_N.grad
    _sigma.pull(gaussians, _sigma.reach(gaussians, CUTOFF), eps_N, alpha=0.3, form=form)
    torch.testing.assert_close(gaussians.sigma.grad, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("curvature", [0.1, 1.0])
def test_where_deviations_settle_on_a_quadratic(curvature: float) -> None:
    # Many independent weights with loss h w^2 / 2 each: their mean deviation has little noise.
    net = nn.Linear(2000, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    gaussians = Gaussians(net, ["weight"])
    _sigma.initialise(gaussians, 0.02)
    alpha, lr = 0.25, 0.05
    generator = torch.Generator().manual_seed(0)
    reach_N = _sigma.reach(gaussians, CUTOFF)
    kept = []
    for step in range(800):
        draw = gaussians.draw(generator)
        (curvature / 2 * draw.values["weight"].square().sum()).backward()
        gaussians.take_gradients(draw)
        _sigma.pull(gaussians, reach_N, draw.eps_N, alpha=alpha)
        with torch.no_grad():
            gaussians.sigma.sub_(gaussians.sigma.grad, alpha=lr)
        if step >= 400:
            kept.append(gaussians.sigma.mean().item())
    kappa = alpha * math.sqrt(2 / math.pi)
    expected = CUTOFF * kappa / (kappa + curvature)
    assert sum(kept) / len(kept) == pytest.approx(expected, rel=0.05)


def test_exposure_predicts_a_flat_weight() -> None:
    steps, lr, alpha = 500, 0.01, 0.2
    plain, heavy = (
        Pwfn(finetune={"kind": "sgd", "lr": lr, "momentum": momentum}) for momentum in (0.0, 0.9)
    )
    x = plain.exposure(alpha=alpha, steps=steps)
    start = 0.002
    value = start
    for _ in range(steps):
        value += lr * alpha * math.sqrt(2 / math.pi) * (CUTOFF - value)
    assert value == pytest.approx(CUTOFF - (CUTOFF - start) * math.exp(-x), rel=1e-3)
    assert heavy.exposure(alpha=alpha, steps=50) == pytest.approx(x)


SIGMA_N = torch.arange(1.0, 101.0)
FIXED_N = torch.arange(100) % 4 == 0


def shown(control: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return controlled(SIGMA_N, FIXED_N, control, generator)  # type: ignore[arg-type]


def test_fixed_deviations_stay_and_free_ones_are_learnt_or_their_median() -> None:
    for control in ("learnt", "permuted", "constant"):
        assert torch.equal(shown(control)[FIXED_N], SIGMA_N[FIXED_N])
    assert torch.equal(shown("learnt"), SIGMA_N)
    assert (shown("constant")[~FIXED_N] == SIGMA_N[~FIXED_N].median()).all()
    none_free = controlled(SIGMA_N, FIXED_N | True, "constant", torch.Generator().manual_seed(0))
    assert torch.equal(none_free, SIGMA_N)


def test_permuted_keeps_the_histogram_and_not_the_places() -> None:
    free = shown("permuted")[~FIXED_N]
    assert torch.equal(free.sort().values, SIGMA_N[~FIXED_N])
    assert not torch.equal(free, SIGMA_N[~FIXED_N])
    assert torch.equal(shown("permuted"), shown("permuted"))
    assert not torch.equal(shown("permuted"), shown("permuted", seed=1))


def test_the_same_weights_are_shown_each_time(
    gaussians: Gaussians, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialise(gaussians)
    sigmas = gaussians.parts(gaussians.sigma)
    whole = snapshot(gaussians, seed=0)
    assert list(whole) == ["0", "3", "4", "6"]
    for name, shown_2S in whole.items():
        assert torch.equal(
            sigmas[f"{name}.weight"], _sigma.initial(gaussians.mus[f"{name}.weight"])
        )
        assert torch.equal(shown_2S[0], gaussians.mus[f"{name}.weight"].flatten())
        assert torch.equal(shown_2S[1], sigmas[f"{name}.weight"].flatten())
    monkeypatch.setattr(_sigma, "MAX_SHOWN", 7)
    before = snapshot(gaussians, seed=3)["6"]
    with torch.no_grad():
        gaussians.mus["6.weight"] += 8
    after = snapshot(gaussians, seed=3)["6"]
    assert before.shape == (2, 7)
    torch.testing.assert_close(after[0], before[0] + 8)
    assert not torch.equal(snapshot(gaussians, seed=4)["6"][0], after[0])
