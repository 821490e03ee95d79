import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tuneparts.pwfn import sigma
from tuneparts.pwfn.conversion import tensors, to_gaussian
from tuneparts.pwfn.gaussian import FLOOR

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
def test_against_the_printed_formula(form: sigma.Form) -> None:
    mu = generic().double()
    product = np.array([literal_product(value) for value in mu.tolist()])
    upper = np.array([(2.0 ** math.ceil(math.log2(abs(v))) - abs(v)) / abs(v) for v in mu.tolist()])
    quartile = np.quantile(product if form == "product" else upper, 0.75)
    expected = np.clip(0.0025 * product / quartile, FLOOR, CEILING)
    np.testing.assert_allclose(sigma.initial(mu, form).numpy(), expected, rtol=1e-12)


def test_the_third_quartile_tells_both_forms_apart() -> None:
    assert sigma.initial(generic()).quantile(0.75).item() == pytest.approx(0.0025, rel=1e-6)
    assert sigma.initial(generic(), "upper").quantile(0.75).item() < 0.0006


def test_signs_and_powers_of_two_do_not_matter() -> None:
    mu = generic()
    assert torch.equal(sigma.initial(mu), sigma.initial(-mu))
    assert torch.equal(sigma.initial(mu), sigma.initial(8 * mu))


def test_least_at_powers_of_two_and_most_at_four_thirds() -> None:
    values = sigma.initial(torch.linspace(1, 2, 301, dtype=torch.float64))
    assert values[0] == FLOOR
    assert values[300] == FLOOR
    assert values.argmax() == 100
    assert literal_product(4 / 3) == pytest.approx(1 / 8, rel=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.one_of(FLOATS, st.just(0.0), st.sampled_from([0.5, -2.0])), min_size=1))
def test_always_finite_and_bounded(values: list[float]) -> None:
    for form in ("product", "upper"):
        result = sigma.initial(torch.tensor(values), form)  # type: ignore[arg-type]
        assert torch.isfinite(result).all()
        assert (result >= FLOOR).all()
        assert (result <= CEILING).all()
        assert (result[torch.tensor(values) == 0] == torch.tensor(FLOOR)).all()


@pytest.mark.parametrize("value", [0.0, 0.5, 0.3])
def test_one_element_and_constant_tensors(value: float) -> None:
    for shape in ((1,), (7,)):
        result = sigma.initial(torch.full(shape, value))
        assert torch.isfinite(result).all()
    assert sigma.initial(torch.tensor([0.3])).item() == pytest.approx(0.0025, rel=1e-6)


def test_more_elements_than_torch_takes_quantiles_of() -> None:
    values = torch.tensor([1.25, 1.5, 1.75, 2.0]).repeat_interleave(2**22 + 1)
    assert sigma._third_quartile(values) == 1.8125


def test_whole_nets(net: nn.Sequential) -> None:
    to_gaussian(net)
    sigma.initialise(net, "product")
    for tensor in tensors(net).values():
        assert torch.equal(tensor.sigma, sigma.initial(tensor.mu))
    sigma.initialise(net, 0.01)
    assert all((tensor.sigma == torch.tensor(0.01)).all() for tensor in tensors(net).values())
    sigma.initialise(net, 0.0)
    assert all((tensor.sigma == FLOOR).all() for tensor in tensors(net).values())
