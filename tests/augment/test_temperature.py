import pytest
import torch

from tuneparts import schema
from tuneparts.augment.temperature import Temperature
from tuneparts.errors import ConfigError


def test_logits_are_divided():
    logits = torch.tensor([[2.0, -4.0]])
    assert Temperature(2.0, learnable=False)(logits).tolist() == [[1, -2]]


def test_gradient_goes_to_the_logarithm():
    module = Temperature(2.0, learnable=True)
    module(torch.tensor([[3.0]])).sum().backward()
    assert module.value.raw.grad.item() == pytest.approx(-1.5)  # d(z / T) / d log T = -z / T


def test_one_is_the_identity():
    assert Temperature(1.0, learnable=False).is_identity
    assert not Temperature(1.0, learnable=True).is_identity


def test_value_is_a_metric():
    values = Temperature(1.5, learnable=True).values()
    assert values == pytest.approx({"temperature": 1.5})
    assert schema.lookup("hyper/temperature")


def test_learning_cannot_start_at_zero():
    with pytest.raises(ConfigError, match="temperature"):
        Temperature(0.0, learnable=True)
