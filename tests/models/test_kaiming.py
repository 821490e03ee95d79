import pytest
import torch
from torch import nn

from tuneparts.core import seeding
from tuneparts.models import DigitsCnn, Mlp, MnistCnn, kaiming


@pytest.mark.parametrize("config", [Mlp(), MnistCnn(), DigitsCnn()], ids=str)
def test_small_nets_start_kaiming_uniform_with_zero_biases(config):
    with seeding.isolated(0, "init"):
        net = config.build((1, 28, 28), 10)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = (6 / layer.weight[0].numel()) ** 0.5
            largest = layer.weight.abs().max().item()
            # The largest of n uniforms falls short of the bound by about bound / n.
            assert bound * (1 - 20 / layer.weight.numel()) < largest <= bound * (1 + 1e-6)
            # A uniform's square has relative standard deviation sqrt(4/5).
            tolerance = 5 * (0.8 / layer.weight.numel()) ** 0.5
            assert abs(3 * layer.weight.square().mean().item() / bound**2 - 1) < tolerance
            assert torch.count_nonzero(layer.bias) == 0


@pytest.mark.parametrize(("fan", "number"), [("fan_in", 8 * 25), ("fan_out", 64 * 25)])
def test_normal_has_variance_two_over_fan(fan, number):
    net = nn.Sequential(nn.Conv2d(8, 64, 5), nn.BatchNorm2d(64))
    nn.init.constant_(net[1].weight, 3.0)
    with seeding.isolated(0, "init"):
        kaiming.normal(net, fan)
    weight = net[0].weight
    tolerance = 5 * (2 / weight.numel()) ** 0.5
    assert abs(weight.square().mean().item() * number / 2 - 1) < tolerance
    assert torch.count_nonzero(net[0].bias) == 0
    assert torch.equal(net[1].weight, torch.full((64,), 3.0))
