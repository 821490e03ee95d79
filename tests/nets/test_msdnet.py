"""The net of Huang et al. (2018): its published counts, and a slow forward pass."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.ensembles._msdnet import exit_flops
from tuneparts.nets import MsdNet
from tuneparts.nets.msdnet import MultiScaleDense
from tuneparts.nets.sizes import count_parameters, shape_of_one, shapes_of

SMALL = MsdNet(exits=4, base=2, step=1, channels=4, growth=2, exit_channels=8)


def build(config: MsdNet, in_shape=(3, 32, 32), num_classes=10) -> MultiScaleDense:
    with seeding.isolated(0, "init"):
        return config.build(in_shape, num_classes)


def operations(net: MultiScaleDense) -> list[tuple[int, int]]:
    """Multiply-adds of convolutions and linear layers up to each exit, and what else is counted.

    The rule of the released counter: an operation for each output of a ReLU, input of a pooling
    layer and bias of a linear layer; none for norms.
    """
    counts = [0, 0]

    def count(module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        match module:
            case nn.Conv2d():
                counts[0] += out[0].numel() * module.weight[0].numel()
            case nn.Linear():
                counts[0] += module.weight.numel()
                counts[1] += module.bias.numel()
            case nn.ReLU():
                counts[1] += out[0].numel()
            case nn.AdaptiveAvgPool2d():
                counts[1] += given[0][0].numel()

    shapes = shapes_of(net)
    assert isinstance(shapes, MultiScaleDense)
    hooks = [module.register_forward_hook(count) for module in shapes.modules()]
    found = [(counts[0], counts[1]) for _ in shapes.exits(shape_of_one(net, (3, 32, 32)))]
    for hook in hooks:  # the copy shares them with the net
        hook.remove()
    return found


def test_parameters_are_those_of_the_released_net() -> None:
    """The log of the authors' PyTorch code, CIFAR-10, ten blocks, base 4, step 2: 4839544."""
    assert count_parameters(build(MsdNet())) == 4_839_544


def test_operations_are_counted_as_ours_and_as_the_released_counter_does() -> None:
    net = build(MsdNet(exits=7, base=1, step=1, spacing="linear"), num_classes=100)
    found = operations(net)
    assert exit_flops(net, (3, 32, 32)) == [2 * products for products, _ in found]
    millions = [round((products + others) / 1e6, 2) for products, others in found]
    # Counted by hand from the released layout and counting rule; see docs/methods/ensembles.md.
    assert millions == [6.86, 14.35, 27.29, 48.45, 76.43, 108.85, 137.28]


def test_the_net_of_teterwak_has_about_their_budget() -> None:
    """16 blocks with 12, 24 and 48 channels, beside 18 million weights of the others."""
    assert count_parameters(build(MsdNet(exits=16, growth=12), num_classes=100)) == 18_794_216


def slow_forward(net: MultiScaleDense, config: MsdNet, x: Tensor) -> list[Tensor]:
    """All exits by the text of the paper: maps by name, no module's own forward but leaf layers."""

    def conv(layers: Any, x: Tensor, stride: int = 1) -> Tensor:
        convolution, norm = layers[0], layers[1]
        pad = convolution.kernel_size[0] // 2
        y = F.conv2d(x, convolution.weight, stride=stride, padding=pad)
        mean, var = norm.running_mean[:, None, None], norm.running_var[:, None, None]
        y = (y - mean) / torch.sqrt(var + norm.eps)
        return (y * norm.weight[:, None, None] + norm.bias[:, None, None]).clamp_min(0)

    num_scales = len(config.growth_factors)
    third = math.ceil(sum(config.layers) / num_scales)
    maps: dict[int, Tensor] = {}
    for scale in range(num_scales):
        x = conv(net.stem[scale], x, 1 if scale == 0 else 2)
        maps[scale] = x
    found, layer = [], 0
    for block, classifier in zip(net.blocks, net.classifiers, strict=True):
        modules = iter(block)
        for _ in range(config.layers[len(found)]):
            first, before = layer // third, max(0, layer - 1) // third
            dense, new, downs = next(modules), {}, 0
            for scale in range(first, num_scales):
                same = dense.same[scale - first]
                parts = [maps[scale], conv(same[1], conv(same[0], maps[scale]))]
                if scale - 1 in maps and scale > before:
                    down = dense.down[downs]
                    parts.insert(1, conv(down[1], conv(down[0], maps[scale - 1]), 2))
                    downs += 1
                new[scale] = torch.cat(parts, 1)
            maps = new
            if first > before:
                transition = next(modules)
                maps = {s: conv(transition[s - first], maps[s]) for s in maps}
            layer += 1
        y = conv(classifier[1], conv(classifier[0], maps[num_scales - 1], 2), 2).mean((2, 3))
        found.append(y @ classifier[4].weight.T + classifier[4].bias)
    return found


@pytest.mark.parametrize(
    "config", [SMALL, SMALL.replaced({"spacing": "linear", "base": 1})], ids=repr
)
def test_exits_are_those_of_a_slow_forward_pass(config: MsdNet) -> None:
    net = build(config, (3, 16, 16), 5).double()
    x = torch.randn(6, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    net.train()
    net(x)  # statistics that are not those of the start
    net.eval()
    exits = list(net.exits(x))
    for ours, theirs in zip(exits, slow_forward(net, config, x), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(net(x), exits[-1])


@pytest.mark.parametrize("in_shape", [(1, 8, 8), (1, 14, 14), (4, 9, 13)], ids=str)
def test_images_of_many_shapes(in_shape: tuple[int, ...]) -> None:
    net = build(SMALL, in_shape, 5).eval()
    assert [logits.shape for logits in net.exits(torch.zeros(2, *in_shape))] == [(2, 5)] * 4


@pytest.mark.parametrize(
    "fields", [{"growth": 3, "growth_factors": (1, 1, 1)}, {"growth_factors": (1, 2)}], ids=str
)
def test_factors_that_do_not_fit_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="factor"):
        parse(MsdNet, fields)
