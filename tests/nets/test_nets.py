"""What every net has in common: shapes, determinism, purity, and the layers it may be made of."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.nets import (
    NETS,
    DigitsCnn,
    FixupResNet,
    Imagenet,
    Mlp,
    MnistCnn,
    MobileNetV2,
    NetConfig,
    ResNet9,
    ResNet18,
    ResNet50Gn,
    WideResNet,
)
from tuneparts.nets.layers import Bias, ScalarMultiplier
from tuneparts.nets.sizes import count_parameters

SMALL = [
    Mlp(widths=(16, 8)),
    MnistCnn(channels=(4, 6), hidden=(10, 8)),
    DigitsCnn(),
    FixupResNet(planes=4),
    WideResNet(depth=10),
    WideResNet(depth=10, skip="identity"),
    ResNet50Gn(num_per_stage=1),
    ResNet9(width=4),
    ResNet18(width=4),
    ResNet18(width=4, stem_pool=True),
    MobileNetV2(width=0.1),
]
WITHOUT_BATCH_NORM = [c for c in SMALL if not isinstance(c, WideResNet | ResNet18 | MobileNetV2)]


def build(config: NetConfig, in_shape=(2, 8, 8), num_classes=3, seed=0) -> nn.Module:
    with seeding.isolated(seed, "init"):
        return config.build(in_shape, num_classes)


def inputs(num: int, in_shape=(2, 8, 8), seed=0) -> torch.Tensor:
    return torch.randn(num, *in_shape, generator=seeding.torch_generator(seed, "x"))


@pytest.mark.parametrize(
    ("config", "in_shape", "num_classes", "expected"),
    [
        # Hand count: 784*256+256 + 256*256+256 + 256*10+10.
        (Mlp(), (1, 28, 28), 10, 269_322),
        (Mlp(widths=()), (30,), 2, 62),
        # Mlodozeniec et al. (2023), Table 9.
        (MnistCnn(), (1, 28, 28), 10, 1_276_630),
        # Hand count: 160 + 4640 + 128*64+64 + 64*10+10.
        (DigitsCnn(), (1, 8, 8), 10, 13_706),
        (FixupResNet(depth=8), (3, 32, 32), 10, 74_827),
        (FixupResNet(depth=14), (3, 32, 32), 10, 171_610),
        (FixupResNet(depth=8, planes=8), (3, 32, 32), 10, 18_995),
        # Zagoruyko & Komodakis (2016), 36.5M; convolutions 36,454,832.
        (WideResNet(depth=28, width=10), (3, 32, 32), 10, 36_479_194),
        (WideResNet(depth=28, width=10), (3, 32, 32), 100, 36_536_884),
        # Convolutions 173,488 + BatchNorm 928 + classifier 650.
        (WideResNet(depth=16, width=1), (3, 32, 32), 10, 175_066),
        # Hand count: convolutions 751,536 + GroupNorm 3,616 + classifier 13,000.
        (ResNet50Gn(), (3, 64, 64), 200, 768_152),
        (ResNet9(), (3, 32, 32), 10, 6_573_120),
        (ResNet18(), (3, 32, 32), 10, 11_173_962),
        (ResNet18(stem_pool=True), (3, 32, 32), 10, 11_173_962),
        # Sandler et al. (2018) as counted by torchvision: 3,504,872 with 1,000 classes.
        (MobileNetV2(), (3, 32, 32), 1000, 3_504_872),
        (MobileNetV2(width=0.5), (3, 32, 32), 1000, 1_968_680),
        (Imagenet(name="imagenet_resnet18"), (3, 224, 224), 1000, 11_689_512),
        (Imagenet(name="imagenet_resnet34"), (3, 224, 224), 1000, 21_797_672),
        (Imagenet(name="imagenet_resnet50"), (3, 224, 224), 1000, 25_557_032),
        (Imagenet(name="imagenet_wide_resnet50_2"), (3, 224, 224), 1000, 68_883_240),
        (Imagenet(name="imagenet_densenet161"), (3, 224, 224), 1000, 28_681_000),
    ],
    ids=str,
)
def test_parameter_counts(config, in_shape, num_classes, expected):
    with torch.device("meta"):
        net = config.build(in_shape, num_classes)
        assert count_parameters(net) == expected
        assert net.eval()(torch.empty(2, *in_shape)).shape == (2, num_classes)


def test_every_net_is_counted_somewhere_in_this_file():
    imagenet = {name for name in NETS if name.startswith("imagenet_")}
    assert {c.name for c in SMALL} | imagenet == set(NETS)


@pytest.mark.parametrize("in_shape", [(1, 8, 8), (1, 14, 14), (3, 28, 28), (4, 9, 13)], ids=str)
@pytest.mark.parametrize("config", SMALL, ids=str)
def test_images_of_many_shapes_and_batches_of_any_size(config, in_shape):
    net = build(config, in_shape, 5).eval()
    x = inputs(3, in_shape)
    assert net(x).shape == (3, 5)
    # Each example on its own, through kernels that may add in another order.
    torch.testing.assert_close(net(x[1:2]), net(x)[1:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_initialisation_is_a_function_of_the_seed(config):
    one, same, other = build(config), build(config), build(config, seed=1)
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_training_leaves_the_global_generator_alone(config):
    net = build(config).train()
    before = torch.get_rng_state()
    net(inputs(4)).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_only_layers_that_methods_can_treat_hold_weights(config):
    known = (nn.Linear, nn.Conv2d, nn.BatchNorm2d, nn.GroupNorm, Bias, ScalarMultiplier)
    for module in build(config).modules():
        if list(module.parameters(recurse=False)) or list(module.buffers(recurse=False)):
            assert type(module) in known


@pytest.mark.parametrize(
    ("config", "num_slots"),
    [
        (Mlp(), 2),
        (Mlp(widths=()), 0),
        (MnistCnn(), 4),
        (DigitsCnn(), 3),
        (ResNet9(width=4), 2),
        (MobileNetV2(width=0.1), 1),
        (WideResNet(), 0),
    ],
    ids=str,
)
def test_dropout_slots_are_there_at_rate_zero(config, num_slots):
    slots = [m for m in build(config).modules() if isinstance(m, nn.Dropout)]
    assert len(slots) == num_slots
    assert all(slot.p == 0.0 for slot in slots)


@pytest.mark.parametrize("config", SMALL, ids=str)
def test_functional_call_uses_the_weights_it_is_given(config):
    net, other = build(config).eval(), build(config, seed=1).eval()
    # FixUp starts with zero logits whatever the seed: move all weights a little.
    for i, parameter in enumerate(other.parameters()):
        parameter.data += 0.1 * torch.randn(
            parameter.shape, generator=seeding.torch_generator(0, "move", i)
        )
    x = inputs(3)
    before = net(x)
    tensors = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    assert torch.equal(functional_call(net, tensors, (x,)), other(x))
    assert not torch.equal(before, other(x))
    assert torch.equal(net(x), before)


@pytest.mark.parametrize("config", WITHOUT_BATCH_NORM, ids=str)
def test_per_example_gradients_by_vmap_equal_a_loop_in_train_mode(config):
    net = build(config).double().train()
    for i, parameter in enumerate(net.parameters()):
        parameter.data += 0.05 * torch.randn(
            parameter.shape, generator=seeding.torch_generator(0, "move", i), dtype=torch.float64
        )
    weights = {name: p.detach() for name, p in net.named_parameters()}
    x, y = inputs(3).double(), torch.tensor([0, 2, 1])

    def loss(weights, x, y):
        return cross_entropy(functional_call(net, weights, (x[None],)), y[None])

    together = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    for i in range(3):
        net.zero_grad()
        cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(together[name][i], parameter.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "config",
    [
        Mlp(widths=(32,)),
        MnistCnn(channels=(8, 8), hidden=(32, 16)),
        DigitsCnn(),
        FixupResNet(planes=8),
        WideResNet(depth=10),
        ResNet50Gn(num_per_stage=1),
        ResNet9(width=8),
    ],
    ids=str,
)
def test_one_batch_is_learnt_by_heart(config):
    net = build(config, (1, 8, 8), 4).train()
    x, y = inputs(16, (1, 8, 8)), torch.arange(16) % 4
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        cross_entropy(net(x), y).backward()
        optimiser.step()
    assert cross_entropy(net(x), y).item() < 0.1 < math.log(4)


@pytest.mark.parametrize("name", [name for name in NETS if name != "mlp"])
def test_image_nets_refuse_vectors(name):
    with pytest.raises(ConfigError, match=f"`{name}` takes images.*Use `mlp`"):
        NETS[name](name=name).build((30,), 2)


@pytest.mark.parametrize(
    ("config", "side"), [(MnistCnn(), 3), (DigitsCnn(), 3), (ResNet9(), 7)], ids=str
)
def test_images_that_would_be_pooled_away_are_refused(config, side):
    with pytest.raises(ConfigError, match=f"at least {side + 1}x{side + 1} pixels, but got"):
        config.build((1, side, 28), 10)
    with torch.device("meta"):
        assert config.build((1, side + 1, 28), 10) is not None


def test_imagenet_nets_refuse_grey_images():
    with pytest.raises(ConfigError, match="3 channels, but got 1"):
        Imagenet(name="imagenet_resnet18").build((1, 64, 64), 10)


def test_imagenet_nets_do_not_overwrite_activations():
    with torch.device("meta"):
        net = Imagenet(name="imagenet_resnet18").build((3, 64, 64), 10)
    relus = [m for m in net.modules() if isinstance(m, nn.ReLU)]
    assert relus
    assert not any(relu.inplace for relu in relus)
