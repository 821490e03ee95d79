"""Nets without knowledge of any method: one file per net, `surgery` to change layers by type."""

from tuneparts.models.digits_cnn import DigitsCnn
from tuneparts.models.fixup_resnet import FixupResNet
from tuneparts.models.imagenet import Imagenet
from tuneparts.models.mlp import Mlp
from tuneparts.models.mnist_cnn import MnistCnn
from tuneparts.models.mobilenet_v2 import MobileNetV2
from tuneparts.models.net import NetConfig
from tuneparts.models.registry import NETS, Net
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
