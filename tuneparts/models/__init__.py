"""Nets without knowledge of any method: one file per net, `surgery` to change layers by type.

A config field of type `Net` takes a net's config, a dict with its name, or the name alone. A net of
one's own is named by what builds it, see `Own`.

Example:
    >>> from tuneparts.models import NETS, Mlp
    >>> net = Mlp(widths=(16,)).build((8,), num_classes=3)
    >>> sorted(NETS)[:3]
    ['digits_cnn', 'fixup_resnet', 'imagenet_densenet161']
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import BeforeValidator, Discriminator, Tag
from torch import nn

from tuneparts.core.errors import UnknownNameError
from tuneparts.models.digits_cnn import DigitsCnn
from tuneparts.models.fixup_resnet import FixupResNet
from tuneparts.models.imagenet import Imagenet
from tuneparts.models.mlp import Mlp
from tuneparts.models.mnist_cnn import MnistCnn
from tuneparts.models.mobilenet_v2 import MobileNetV2
from tuneparts.models.net import NetConfig
from tuneparts.models.own import Own, check_own_nets, nets_in, own_nets
from tuneparts.models.resnet9 import ResNet9
from tuneparts.models.resnet18 import ResNet18
from tuneparts.models.resnet50_gn import ResNet50Gn
from tuneparts.models.wide_resnet import WideResNet

__all__ = [
    "NETS",
    "DigitsCnn",
    "FixupResNet",
    "Imagenet",
    "Mlp",
    "MnistCnn",
    "MobileNetV2",
    "Net",
    "NetConfig",
    "Own",
    "ResNet9",
    "ResNet18",
    "ResNet50Gn",
    "WideResNet",
    "check_own_nets",
    "nets_in",
    "own_nets",
]

BuiltIn: TypeAlias = (
    Annotated[Mlp, Tag("mlp")]
    | Annotated[MnistCnn, Tag("mnist_cnn")]
    | Annotated[DigitsCnn, Tag("digits_cnn")]
    | Annotated[FixupResNet, Tag("fixup_resnet")]
    | Annotated[WideResNet, Tag("wide_resnet")]
    | Annotated[ResNet50Gn, Tag("resnet50_gn")]
    | Annotated[ResNet9, Tag("resnet9")]
    | Annotated[ResNet18, Tag("resnet18")]
    | Annotated[MobileNetV2, Tag("mobilenet_v2")]
    | Annotated[Imagenet, Tag("imagenet")]
)

_TAGGED: dict[str, tuple[str, type[NetConfig]]] = {
    name: (tag.tag, config)
    for config, tag in map(get_args, get_args(BuiltIn))
    for name in get_args(config.model_fields["name"].annotation)
}
NETS: Mapping[str, type[NetConfig]] = {name: config for name, (_, config) in _TAGGED.items()}
"""Every name that a net can be asked for by, and the config behind it."""


def _expand(value: Any) -> Any:
    """A bare name or builder stands for the net at its defaults; unknown names are refused."""
    if isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, NetConfig)):
        raise ValueError(
            "a net is given by what builds it, so that every trial has its own: a config such as "
            f"`Mlp()`, a function, or an nn.Module class; but got {value!r:.100}."
        )
    if isinstance(value, str) or callable(value):
        value = {"name": value}
    if isinstance(value, Mapping):
        name = value.get("name")
        if name is None:
            raise ValueError(f"a net needs a `name`. Known: {', '.join(sorted(NETS))}.")
        is_own = callable(name) or (isinstance(name, str) and ":" in name)
        if not is_own and (not isinstance(name, str) or name not in NETS):
            # pydantic turns only ValueErrors into its own report
            raise ValueError(
                f"{UnknownNameError('net', str(name), NETS)} A net of your own is named by the "
                "import path of its builder, `package.module:build`."
            )
    elif not isinstance(value, (Own, *NETS.values())):
        raise ValueError(f"a net is a config, a dict with a `name`, or a name; but got {value!r}.")
    return value


def _tag(value: Any) -> str:
    """Which config a value is for."""
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return _TAGGED[name][0] if isinstance(name, str) and name in _TAGGED else "own"


Net: TypeAlias = Annotated[
    BuiltIn | Annotated[Own, Tag("own")], Discriminator(_tag), BeforeValidator(_expand)
]
"""The type of a config field: takes a net's config, a dict with its name, or the name alone.

A builder of one's own, or its import path, is a name too; see `Own`.
"""
