import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, relu

from tuneparts.core import seeding
from tuneparts.models import FixupResNet
from tuneparts.models.fixup_resnet import FixupBlock
from tuneparts.models.layers import Bias, ScalarMultiplier, scalar_names


def build(depth: int, planes: int = 16) -> nn.Sequential:
    with seeding.isolated(0, "init"):
        return FixupResNet(depth=depth, planes=planes).build((3, 32, 32), 10)


def randn(*shape: int, stream: str = "x", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=seeding.torch_generator(0, stream), dtype=dtype)


@pytest.mark.parametrize("depth", [8, 14, 20])
def test_logits_are_exactly_zero_at_the_start(depth):
    assert torch.count_nonzero(build(depth, planes=8)(randn(2, 3, 32, 32))) == 0


@pytest.mark.parametrize("depth", [8, 14, 20])
def test_depth_counts_convolutions_and_the_classifier(depth):
    net = build(depth, planes=4)
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in net.modules()) == depth
    assert sum(isinstance(m, FixupBlock) for m in net) == (depth - 2) // 2


def test_a_block_starts_as_the_identity_up_to_relu():
    x = randn(2, 16, 9, 9)
    kept, halved = build(8).stage1_block1, build(8).stage2_block1
    assert torch.equal(kept(x), x.clamp(min=0))
    out = halved(x)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2].clamp(min=0))
    assert torch.count_nonzero(out[:, 16:]) == 0
    assert out.shape == (2, 32, 5, 5)


@pytest.mark.parametrize(("num_in", "num_out", "stride"), [(3, 3, 1), (3, 6, 2)])
def test_a_block_is_the_papers_formula(num_in, num_out, stride):
    block = FixupBlock(num_in, num_out, stride).double()
    for i, parameter in enumerate(block.parameters()):
        parameter.data = randn(*parameter.shape, stream=f"p{i}", dtype=torch.float64)
    x = randn(2, num_in, 7, 7, dtype=torch.float64)

    b1a, b1b, b2a, b2b = (getattr(block, f"bias{i}").bias.item() for i in ("1a", "1b", "2a", "2b"))
    out = relu(conv2d(x + b1a, block.conv1.weight, stride=stride, padding=1) + b1b)
    out = conv2d(out + b2a, block.conv2.weight, padding=1) * block.scale.scale.item() + b2b
    if stride == 2:
        small = avg_pool2d(x + b1a, kernel_size=1, stride=2)
        shortcut = torch.cat([small, torch.zeros_like(small)], dim=1)
    else:
        shortcut = x
    torch.testing.assert_close(block(x), relu(out + shortcut), rtol=1e-12, atol=1e-12)


def test_first_convolutions_have_the_papers_variance():
    net = build(14)
    for block in (layer for layer in net if isinstance(layer, FixupBlock)):
        weight = block.conv1.weight
        expected = 2 / (weight.shape[0] * 9) / 6  # six blocks
        # The relative error of a variance from n draws is about sqrt(2 / n); five of these.
        tolerance = 5 * (2 / weight.numel()) ** 0.5
        assert abs(weight.square().mean().item() / expected - 1) < tolerance
        assert torch.count_nonzero(block.conv2.weight) == 0


def test_scalars_are_four_biases_and_a_scale_a_block_and_two_biases():
    net = build(14)
    assert sum(type(m) is Bias for m in net.modules()) == 4 * 6 + 2
    assert sum(type(m) is ScalarMultiplier for m in net.modules()) == 6
    names = scalar_names(net)
    assert len(names) == len(set(names)) == 5 * 6 + 2
    parameters = dict(net.named_parameters())
    assert all(parameters[name].numel() == 1 for name in names)
    assert {name for name, p in parameters.items() if p.numel() == 1} == set(names)
    assert all(
        parameters[name].item() == (1.0 if name.endswith("scale.scale") else 0.0) for name in names
    )


def test_scalar_names_of_a_lone_scalar():
    assert scalar_names(Bias()) == ["bias"]
    assert scalar_names(nn.Linear(1, 1)) == []
