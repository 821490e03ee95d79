from importlib import metadata

import pytest
from pydantic import TypeAdapter, ValidationError
from torch import nn

from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError
from tuneparts.models import NETS, FixupResNet, Imagenet, Mlp, MnistCnn, Net, WideResNet


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


def linear(in_shape: tuple[int, ...], num_classes: int, bias: bool = True) -> nn.Module:
    return nn.Linear(in_shape[0], num_classes, bias=bias)


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
