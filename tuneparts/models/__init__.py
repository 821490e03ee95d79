"""Nets without knowledge of any method: their configs here, their layers in a module of each.

Example:
    >>> from tuneparts.models import NETS, Mlp
    >>> net = Mlp(widths=(16,)).build((8,), num_classes=3)
    >>> sorted(NETS)[:3]
    ['digits_cnn', 'fixup_resnet', 'imagenet_densenet161']
"""

from collections.abc import Mapping

from tuneparts.models.config import (
    REGISTRY,
    DigitsCnn,
    FixupResNet,
    Imagenet,
    Mlp,
    MnistCnn,
    MobileNetV2,
    MsdNet,
    Net,
    NetConfig,
    Own,
    ResNet9,
    ResNet18,
    ResNet50Gn,
    WideResNet,
    check_own_nets,
    nets_in,
    own_nets,
)

__all__ = [
    "NETS",
    "DigitsCnn",
    "FixupResNet",
    "Imagenet",
    "Mlp",
    "MnistCnn",
    "MobileNetV2",
    "MsdNet",
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

NETS: Mapping[str, type[NetConfig]] = {name: REGISTRY.find(name) for name in REGISTRY.known}
"""Every name of ours that a net can be asked for by, and the config behind it."""
