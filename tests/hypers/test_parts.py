import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.hypers import LOG, POSITIVE, REAL, UNIT
from tuneparts.hypers.parts import _ConstrainedParameter

LINKS = {"positive": POSITIVE, "log": LOG, "unit": UNIT, "real": REAL}


@settings(max_examples=50, deadline=None)
@given(link=st.sampled_from(["positive", "log", "real"]), value=st.floats(1e-6, 300))
def test_a_link_inverts(link, value):
    raw = torch.tensor(LINKS[link].raw(value), dtype=torch.float64)
    assert LINKS[link].value(raw).item() == pytest.approx(value, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(value=st.floats(1e-6, 1 - 1e-6))
def test_the_unit_link_inverts(value):
    raw = torch.tensor(UNIT.raw(value), dtype=torch.float64)
    assert UNIT.value(raw).item() == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_learnable_numbers_are_parameters_with_a_gradient(link):
    parameter = _ConstrainedParameter([0.2, 0.7], link=link, learnable=True, names=["a", "b"])
    parameter.tensor().sum().backward()
    assert parameter.raw.grad.abs().min() > 0
    assert parameter.numbers() == pytest.approx([0.2, 0.7])
    assert list(parameter.state_dict()) == ["raw"]


def test_fixed_numbers_are_exact_and_config_alone():
    parameter = _ConstrainedParameter([0.0, 0.1], link=POSITIVE, learnable=False, names=["a", "b"])
    assert parameter.numbers() == [0.0, 0.1]
    assert parameter.tensor()[0] == 0
    assert parameter.state_dict() == {}
    assert parameter.double().tensor().dtype == torch.float64


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_learnable_number_cannot_start_on_the_bound(value):
    with pytest.raises(ConfigError, match=r"`dropout.0` .* or freeze its part"):
        _ConstrainedParameter([value], link=UNIT, learnable=True, names=["dropout.0"])
