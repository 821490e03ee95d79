"""torchvision's ImageNet nets by name: ResNet-18, -34 and -50, Wide ResNet-50-2, DenseNet-161."""

from typing import Literal

from torch import nn

from tuneparts.core import torchvision_door
from tuneparts.core.errors import ConfigError
from tuneparts.models.net import NetConfig, image_shape

_PREFIX = "imagenet_"


class Imagenet(NetConfig):
    """A net as torchvision builds it, with weights at their initialisation."""

    name: Literal[
        "imagenet_resnet18",
        "imagenet_resnet34",
        "imagenet_resnet50",
        "imagenet_wide_resnet50_2",
        "imagenet_densenet161",
    ]

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        channels, _, _ = image_shape(self, in_shape, least=32)
        if channels != 3:
            raise ConfigError(
                f"`{self.name}` takes images with 3 channels, but got {channels}. "
                "Use `resnet18` or `wide_resnet`, which take any number."
            )
        models = torchvision_door.load().models
        net: nn.Module = models.get_model(
            self.name.removeprefix(_PREFIX), weights=None, num_classes=num_classes
        )
        for layer in net.modules():
            if isinstance(layer, nn.ReLU):
                layer.inplace = False  # activations may still be read by whoever hooks a layer
        return net
