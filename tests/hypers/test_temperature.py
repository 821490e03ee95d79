import pytest
import torch

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import HypersConfig, Shapes, Temperature
from tuneparts.hypers.parts import Part


def part(value: float, *, learnable: bool) -> Part:
    return Temperature(value=value).part(Shapes(), name="temperature", learnable=learnable)


def test_logits_are_divided():
    logits = torch.tensor([[2.0, -4.0]])
    assert part(2.0, learnable=False)(logits).tolist() == [[1, -2]]


def test_gradient_goes_to_the_logarithm():
    module = part(2.0, learnable=True)
    module(torch.tensor([[3.0]])).sum().backward()
    assert module.value.raw.grad.item() == pytest.approx(-1.5)  # d(z / T) / d log T = -z / T


def test_one_is_the_identity():
    assert part(1.0, learnable=False).is_identity
    assert not part(1.0, learnable=True).is_identity


def test_value_is_a_metric():
    values = part(1.5, learnable=True).values()
    assert values == pytest.approx({"temperature": 1.5})
    assert schema.lookup("hyper/temperature")


def test_it_cannot_be_zero():
    with pytest.raises(ConfigError, match="temperature"):
        parse(HypersConfig, {"temperature": 0.0})
