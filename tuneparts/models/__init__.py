"""Nets without knowledge of any method: one file per net, `surgery` to change layers by type.

A config field of type `Net` takes a net's config, a dict with its name, or the name alone.

Example:
    >>> from tuneparts.models import NETS, Mlp
    >>> net = Mlp(widths=(16,)).build((8,), num_classes=3)
    >>> sorted(NETS)[:3]
    ['digits_cnn', 'fixup_resnet', 'imagenet_resnet18']
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import BeforeValidator, Field

from tuneparts.errors import UnknownNameError
from tuneparts.models.digits_cnn import DigitsCnn
from tuneparts.models.fixup_resnet import FixupResNet
from tuneparts.models.imagenet import Imagenet
from tuneparts.models.mlp import Mlp
from tuneparts.models.mnist_cnn import MnistCnn
from tuneparts.models.mobilenet_v2 import MobileNetV2
from tuneparts.models.net import NetConfig
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
    "ResNet9",
    "ResNet18",
    "ResNet50Gn",
    "WideResNet",
]

AnyNet: TypeAlias = (
    Mlp
    | MnistCnn
    | DigitsCnn
    | FixupResNet
    | WideResNet
    | ResNet50Gn
    | ResNet9
    | ResNet18
    | MobileNetV2
    | Imagenet
)

NETS: Mapping[str, type[NetConfig]] = {
    name: config
    for config in get_args(AnyNet)
    for name in get_args(config.model_fields["name"].annotation)
}
"""Every name that a net can be asked for by, and the config behind it."""


def _expand_name(value: Any) -> Any:
    """A bare name stands for the net at its defaults; unknown names are refused with the list."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Mapping):
        name = value.get("name")
        if name is None:
            raise ValueError(f"a net needs a `name`. Known: {', '.join(sorted(NETS))}.")
        if not isinstance(name, str) or name not in NETS:
            # pydantic turns only ValueErrors into its own report
            raise ValueError(str(UnknownNameError("net", str(name), NETS)))
    return value


Net: TypeAlias = Annotated[AnyNet, Field(discriminator="name"), BeforeValidator(_expand_name)]
"""The type of a config field: takes a net's config, a dict with its name, or the name alone."""
