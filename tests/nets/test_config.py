"""Configs of nets: by name, by builder, and what is refused."""

from importlib import metadata
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import Standard
from tuneparts.nets import (
    NETS,
    FixupResNet,
    Imagenet,
    Mlp,
    MnistCnn,
    Net,
    Own,
    WideResNet,
    check_own_nets,
)


def linear(in_shape: tuple[int, ...], num_classes: int, bias: bool = True) -> nn.Module:
    return nn.Linear(in_shape[0], num_classes, bias=bias)


class Holder(Config):
    net: Net = MnistCnn()


@pytest.mark.parametrize("name", NETS)
def test_a_net_may_be_given_as_config_dict_or_name(name):
    config = NETS[name](name=name)
    for value in (config, {"name": name}, name):
        assert Holder(net=value).net == config
        assert type(Holder(net=value).net) is NETS[name]


@pytest.mark.parametrize(
    "config",
    [
        *(config(name=name) for name, config in NETS.items()),
        Mlp(widths=(3, 4, 5), activation="relu"),
        Mlp(widths=()),
        FixupResNet(depth=20, planes=8),
        WideResNet(depth=28, width=10, skip="identity"),
    ],
    ids=str,
)
def test_configs_survive_json(config):
    holder = Holder(net=config)
    again = Holder.model_validate_json(holder.model_dump_json())
    assert again == holder
    assert type(again.net) is type(config)


def test_fields_are_changed_by_dotted_path():
    assert Holder(net="mlp").replaced({"net.widths": [7]}).net == Mlp(widths=(7,))
    assert Holder().replaced({"net": "mlp"}).net == Mlp()


def test_the_same_name_field_chooses_between_imagenet_nets():
    assert TypeAdapter(Net).validate_python("imagenet_resnet34") == Imagenet(
        name="imagenet_resnet34"
    )


@pytest.mark.parametrize("value", ["mnist_cn", {"name": "mnist_cn"}])
def test_an_unknown_name_is_refused_with_the_known_ones(value):
    with pytest.raises(ConfigError, match="`mnist_cn` is not a known net") as refusal:
        parse(Holder, {"net": value})
    assert "Did you mean `mnist_cnn`?" in str(refusal.value)
    assert all(name in str(refusal.value) for name in NETS)


@pytest.mark.parametrize(
    ("value", "law"),
    [
        ({"depth": 8}, "needs a `name`"),
        ({"name": ["mlp"]}, "is not a known net"),
        ({"name": "wide_resnet", "dept": 16}, "Did you mean `depth`?"),
        ({"name": "wide_resnet", "depth": 12}, "6n \\+ 4"),
        ({"name": "fixup_resnet", "depth": 10}, "6n \\+ 2"),
        ({"name": "fixup_resnet", "depth": 2}, "6n \\+ 2"),
        ({"name": "resnet9", "width": 6, "groups": 4}, "must divide `width`"),
        ({"name": "mlp", "widths": [0]}, "greater than 0"),
        ({"name": "mlp", "activation": "tanh"}, "'relu' or 'gelu'"),
        (3, "dict"),
    ],
)
def test_what_cannot_be_meant_is_refused(value, law):
    with pytest.raises(ValidationError, match=law):
        Holder(net=value)
    with pytest.raises(ConfigError, match=law):
        parse(Holder, {"net": value})


def test_an_installed_package_gives_its_nets_names(monkeypatch):
    point = metadata.EntryPoint("mine", f"{__name__}:linear", "tuneparts.nets")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    net = Holder(net={"name": "mine", "bias": False}).net
    assert net.model_dump() == {"name": "mine", "bias": False}
    assert net.build((3,), 2).bias is None
    with pytest.raises(ConfigError, match="Did you mean `mine`"):
        parse(Holder, {"net": "mien"})


def test_configs_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Mlp().widths = (3,)


class Perceptron(nn.Module):
    """A builder may be a class."""

    def __init__(self, in_shape: tuple[int, ...], num_classes: int, widths: Any = (4,)) -> None:
        super().__init__()
        self.first = nn.Linear(in_shape[0], widths[0])
        self.last = nn.Linear(widths[0], num_classes)
        self.norm = nn.BatchNorm1d(widths[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)))


def too_many(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(in_shape[0], num_classes + 1)


def no_module(in_shape: tuple[int, ...], num_classes: int) -> str:
    return "a net"


def images_only(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    channels, height, width = in_shape
    return nn.Linear(channels * height * width, num_classes)


NOT_A_BUILDER = 3


@pytest.mark.parametrize(
    "value",
    [
        linear,
        f"{__name__}:linear",
        {"name": linear},
        {"name": f"{__name__}:linear"},
        Own(linear),
        Own(name=f"{__name__}:linear"),
    ],
)
def test_a_builder_is_named_in_many_ways(value) -> None:
    assert Holder(net=value).net == Own(linear)


def test_a_config_survives_json_and_its_arguments_are_fields() -> None:
    holder = Holder(net=Own(Perceptron, widths=(5,)))
    again = Holder.model_validate_json(holder.model_dump_json())
    assert again == holder
    assert again.net.arguments == {"widths": [5]}
    assert holder.replaced({"net.widths": [7]}).net.build((3,), 2).first.out_features == 7
    assert holder.replaced({"net": "mlp"}).net == Mlp()


def test_the_check_of_a_net_leaves_no_trace() -> None:
    net = Own(Perceptron).build((3,), 2)
    assert net.training
    assert net.norm.num_batches_tracked == 0
    before = torch.get_rng_state()
    check_own_nets(Standard(net=Perceptron), (3,), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_sizes_can_be_asked_for_without_memory() -> None:
    with torch.device("meta"):
        assert Own(linear).build((3,), 2).weight.is_meta


def local_builder() -> Any:
    def inner(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Linear(in_shape[0], num_classes)

    return inner


@pytest.mark.parametrize(
    ("value", "law"),
    [
        (lambda in_shape, num_classes: nn.Linear(1, 1), "is a lambda, or stands inside a function"),
        (local_builder(), "Define it with `class` or `def` at the top level of a module"),
        (nn.Linear(2, 2), "an nn.Module class; but got Linear"),
        (Mlp, "a config such as `Mlp"),
        ("nowhere.at.all:net", "No module named 'nowhere'"),
        (f"{__name__}:nothing", "has no attribute 'nothing'"),
        (f"{__name__}:NOT_A_BUILDER", "must build a net.*is not a callable object"),
        ({"name": linear, "width": 3}, "unexpected keyword argument 'width'"),
        ({"name": linear, "bias": object()}, "travel as JSON"),
        ({"name": local_builder}, "must build a net.*too many positional arguments"),
    ],
)
def test_what_cannot_be_built_in_a_worker_is_refused(value, law: str) -> None:
    with pytest.raises(ValidationError, match=law):
        Holder(net=value)
    with pytest.raises(ConfigError, match=law):
        parse(Holder, {"net": value})


@pytest.mark.parametrize(
    ("builder", "law"),
    [
        (too_many, r"gave \(2, 5\) .* not logits \(2, 4\)\. End it with"),
        (no_module, "a builder returns an nn.Module, but .*no_module` returned 'a net'"),
        (images_only, r"images_only` with \{\} .* raised ValueError: not enough values"),
    ],
)
def test_a_net_that_does_not_fit_the_data_is_refused(builder, law: str) -> None:
    with pytest.raises(ConfigError, match=law):
        check_own_nets(Standard(net=builder), (3,), 4)
