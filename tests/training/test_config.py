import json
import math

import pytest
import torch
from torch import nn

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import Standard
from tuneparts.nets import FixupResNet, Mlp
from tuneparts.training.config import Adam, Optimiser, Sgd
from tuneparts.training.step import set_lr


def test_the_cosine_starts_high_ends_low_and_warms_up() -> None:
    config = Adam(lr=0.4, final_lr=0.1, schedule="cosine", warmup=0.2)
    assert config.lr_at(0.0) == 0.0
    assert config.lr_at(0.1) == pytest.approx(0.2)
    assert config.lr_at(0.2) == pytest.approx(0.4)
    assert config.lr_at(0.6) == pytest.approx(0.1 + 0.3 * (1 + math.cos(math.pi / 2)) / 2)
    assert config.lr_at(1.0) == pytest.approx(0.1)
    assert Adam(lr=0.4).lr_at(0.7) == 0.4


@pytest.mark.parametrize("kind", [Sgd, Adam])
def test_fixup_scalars_train_at_a_fraction_of_the_rate(kind: type[Optimiser]) -> None:
    net = FixupResNet(name="fixup_resnet", depth=8, planes=4).build((3, 8, 8), 10)
    optimiser = kind().build(net)
    set_lr(optimiser, 0.5)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    assert len(rates) == len(list(net.parameters()))
    assert {rates[id(p)] for p in net.parameters() if p.numel() == 1} == {0.05}
    assert {rates[id(p)] for p in net.parameters() if p.dim() > 1} == {0.5}


@pytest.mark.parametrize("field", ["momentum", "nesterov", "weight_decay", "kind"])
def test_every_field_matters(field: str) -> None:
    base = Standard(optimiser=Sgd(lr=0.1))
    other = {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1, "kind": "adam"}[field]

    def trained(config: Standard) -> torch.Tensor:
        torch.manual_seed(0)
        net = Mlp(name="mlp", widths=(4,)).build((3,), 2)
        optimiser = config.optimiser.build(net)
        for _ in range(3):
            optimiser.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()
            optimiser.step()
        return torch.cat([p.flatten() for p in net.parameters()])

    with torch.random.fork_rng():
        assert not torch.equal(trained(base), trained(base.replaced({f"optimiser.{field}": other})))


@pytest.mark.parametrize("optimiser", [Adam(lr=0.1), Sgd(lr=0.1, momentum=0.5, nesterov=True)])
def test_an_optimiser_survives_json_under_its_kind(optimiser: Optimiser) -> None:
    config = Standard(optimiser=optimiser)
    tree = json.loads(config.model_dump_json())
    assert tree["optimiser"]["kind"] == type(optimiser).__name__.lower()
    assert parse(Standard, tree) == config
    assert type(parse(Standard, tree).optimiser) is type(optimiser)


def test_an_optimiser_without_a_kind_is_adam() -> None:
    assert parse(Standard, {"optimiser": {"lr": 0.2}}).optimiser == Adam(lr=0.2)


def test_another_kind_keeps_the_fields_that_both_have() -> None:
    config = Standard(optimiser=Sgd(lr=0.2, momentum=0.5, schedule="cosine"))
    adam = config.replaced({"optimiser.weight_decay": 0.1, "optimiser.kind": "adam"})
    assert adam.optimiser == Adam(lr=0.2, schedule="cosine", weight_decay=0.1)
    assert adam.replaced({"optimiser.momentum": 0.1, "optimiser.kind": "sgd"}).optimiser == Sgd(
        lr=0.2, schedule="cosine", weight_decay=0.1, momentum=0.1
    )


@pytest.mark.parametrize(
    ("optimiser", "message"),
    [
        ({"momentum": 0.5}, "^optimiser: `momentum` is not a field of Adam"),
        ({"kind": "sgd", "momentun": 0.5}, "Did you mean `momentum`"),
        ({"kind": "lamb"}, "^`optimiser.kind` = 'lamb': must be one of 'adam', 'sgd'"),
        (3, "^`optimiser` = 3: "),
    ],
)
def test_what_no_optimiser_has_is_refused(optimiser: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(Standard, {"optimiser": optimiser})


def test_steps_multiply_the_rate_at_each_milestone() -> None:
    config = Adam(lr=0.1, schedule="steps", milestones=(0.3, 0.6), step_factor=0.2)
    rates = [config.lr_at(progress) for progress in (0.0, 0.29, 0.3, 0.6, 1.0)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.004, 0.004])


def test_steps_may_begin_with_a_warm_up() -> None:
    config = Adam(
        lr=0.1, schedule="steps", milestones=(0.4, 0.8, 0.9), step_factor=0.2, warmup=1 / 250
    )
    rates = [config.lr_at(epoch / 250) for epoch in (0, 0.5, 1, 99.9, 100, 200, 225)]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.1, 0.02, 0.004, 0.0008])


@pytest.mark.parametrize("kind", [Sgd, Adam])
def test_norms_may_be_free_of_decay(kind: type[Optimiser]) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(4)
    )
    optimiser = kind(weight_decay=0.1).build(net, decays_norms=False)
    decay = {id(p): g["weight_decay"] for g in optimiser.param_groups for p in g["params"]}
    assert [decay[id(p)] for p in net[0].parameters()] == [0.1, 0.1]
    assert [decay[id(p)] for layer in net[1:] for p in layer.parameters()] == [0.0] * 6
    whole = kind(weight_decay=0.1).build(net)
    assert [group["weight_decay"] for group in whole.param_groups] == [0.1]


def test_a_cosine_may_end_before_the_budget_does():
    config = Adam(lr=0.1, schedule="cosine", final_lr=0.001, annealed_over=0.75)
    whole = Adam(lr=0.1, schedule="cosine", final_lr=0.001)
    assert config.lr_at(0.3) == pytest.approx(whole.lr_at(0.4))
    assert config.lr_at(0.75) == config.lr_at(0.9) == config.lr_at(1.0) == pytest.approx(0.001)
    with pytest.raises(ConfigError, match=r"`annealed_over` = 0\.5: must exceed `warmup` = 0\.5"):
        parse(Adam, {"warmup": 0.5, "annealed_over": 0.5})
