import math

import pytest
import torch
from torch import nn

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.nets import FixupResNet, Mlp
from tuneparts.training.config import Optimiser
from tuneparts.training.step import set_lr


def test_the_cosine_starts_high_ends_low_and_warms_up() -> None:
    config = Optimiser(lr=0.4, final_lr=0.1, schedule="cosine", warmup=0.2)
    assert config.lr_at(0.0) == 0.0
    assert config.lr_at(0.1) == pytest.approx(0.2)
    assert config.lr_at(0.2) == pytest.approx(0.4)
    assert config.lr_at(0.6) == pytest.approx(0.1 + 0.3 * (1 + math.cos(math.pi / 2)) / 2)
    assert config.lr_at(1.0) == pytest.approx(0.1)
    assert Optimiser(lr=0.4).lr_at(0.7) == 0.4


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_fixup_scalars_train_at_a_fraction_of_the_rate(kind: str) -> None:
    net = FixupResNet(name="fixup_resnet", depth=8, planes=4).build((3, 8, 8), 10)
    optimiser = Optimiser(kind=kind).build(net)
    set_lr(optimiser, 0.5)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    assert len(rates) == len(list(net.parameters()))
    assert {rates[id(p)] for p in net.parameters() if p.numel() == 1} == {0.05}
    assert {rates[id(p)] for p in net.parameters() if p.dim() > 1} == {0.5}


@pytest.mark.parametrize("field", ["momentum", "nesterov", "weight_decay", "kind"])
def test_every_field_matters(field: str) -> None:
    base = {"kind": "sgd", "lr": 0.1, "momentum": 0.9}
    other = {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1, "kind": "adam"}[field]

    def trained(**values) -> torch.Tensor:
        torch.manual_seed(0)
        net = Mlp(name="mlp", widths=(4,)).build((3,), 2)
        optimiser = Optimiser(**{**base, **values}).build(net)
        for _ in range(3):
            optimiser.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()
            optimiser.step()
        return torch.cat([p.flatten() for p in net.parameters()])

    with torch.random.fork_rng():
        assert not torch.equal(trained(), trained(**{field: other}))


def test_steps_multiply_the_rate_at_each_milestone() -> None:
    config = Optimiser(lr=0.1, schedule="steps", milestones=(0.3, 0.6), step_factor=0.2)
    rates = [config.lr_at(progress) for progress in (0.0, 0.29, 0.3, 0.6, 1.0)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.004, 0.004])


def test_steps_may_begin_with_a_warm_up() -> None:
    config = Optimiser(
        lr=0.1, schedule="steps", milestones=(0.4, 0.8, 0.9), step_factor=0.2, warmup=1 / 250
    )
    rates = [config.lr_at(epoch / 250) for epoch in (0, 0.5, 1, 99.9, 100, 200, 225)]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.1, 0.02, 0.004, 0.0008])


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_norms_may_be_free_of_decay(kind: str) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(4)
    )
    optimiser = Optimiser(kind=kind, weight_decay=0.1).build(net, decays_norms=False)
    decay = {id(p): g["weight_decay"] for g in optimiser.param_groups for p in g["params"]}
    assert [decay[id(p)] for p in net[0].parameters()] == [0.1, 0.1]
    assert [decay[id(p)] for layer in net[1:] for p in layer.parameters()] == [0.0] * 6
    whole = Optimiser(kind=kind, weight_decay=0.1).build(net)
    assert [group["weight_decay"] for group in whole.param_groups] == [0.1]


def test_a_cosine_may_end_before_the_budget_does():
    config = Optimiser(lr=0.1, schedule="cosine", final_lr=0.001, annealed_over=0.75)
    whole = Optimiser(lr=0.1, schedule="cosine", final_lr=0.001)
    assert config.lr_at(0.3) == pytest.approx(whole.lr_at(0.4))
    assert config.lr_at(0.75) == config.lr_at(0.9) == config.lr_at(1.0) == pytest.approx(0.001)
    with pytest.raises(ConfigError, match=r"`annealed_over` = 0\.5: must exceed `warmup` = 0\.5"):
        parse(Optimiser, {"warmup": 0.5, "annealed_over": 0.5})
