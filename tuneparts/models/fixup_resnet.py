"""ResNet-(6n+2) without normalisation (Zhang et al. 2019, FixUp), for 32x32 images.

Three stages of n basic blocks. Learnable scalars stand around the convolutions, and at the start
every block passes its input on, so that the logits are zero.
"""

from collections import OrderedDict

import torch
from torch import nn

from tuneparts.models.config import FixupResNet, image_shape
from tuneparts.models.layers import Bias, PaddedShortcut, ScalarMultiplier


class FixupBlock(nn.Module):
    """ReLU(scale * conv2(ReLU(conv1(x + b1) + b2) + b3) + b4 + shortcut)."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.bias1a = Bias()
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.bias1b = Bias()
        self.bias2a = Bias()
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.scale = ScalarMultiplier()
        self.bias2b = Bias()
        changes = stride != 1 or num_in != num_out
        self.shortcut = PaddedShortcut(stride, num_out - num_in) if changes else None

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, C', H', W')."""
        shifted = self.bias1a(x_BCHW)
        # In place: nothing else reads what these sums made.
        out = torch.relu_(self.bias1b(self.conv1(shifted)))
        out = self.bias2b(self.scale(self.conv2(self.bias2a(out))))
        # Only the changing shortcut sees the shifted input, as in the authors' code.
        kept: torch.Tensor = x_BCHW if self.shortcut is None else self.shortcut(shifted)
        return torch.relu_(out.add_(kept))


def _fixup_resnet(
    config: FixupResNet, in_shape: tuple[int, ...], num_classes: int
) -> nn.Sequential:
    """Build the net."""
    num_in, _, _ = image_shape(config, in_shape, least=1)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Conv2d(num_in, config.planes, 3, padding=1, bias=False),
        stem_bias=Bias(),
        stem_relu=nn.ReLU(inplace=True),
    )
    width, num_per_stage = config.planes, (config.depth - 2) // 6
    for stage in (1, 2, 3):
        num_out = config.planes * 2 ** (stage - 1)
        for i in range(1, num_per_stage + 1):
            stride = 2 if stage > 1 and i == 1 else 1
            layers[f"stage{stage}_block{i}"] = FixupBlock(width, num_out, stride)
            width = num_out
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier_bias"] = Bias()
    layers["classifier"] = nn.Linear(width, num_classes)
    net = nn.Sequential(layers)
    # The rule for two-layer branches: L^(-1/2) on each first layer, zero on each last one.
    blocks = [layer for layer in net if isinstance(layer, FixupBlock)]
    for block in blocks:
        fan_out = block.conv1.out_channels * 3 * 3
        nn.init.normal_(block.conv1.weight, std=(2 / fan_out / len(blocks)) ** 0.5)
        nn.init.zeros_(block.conv2.weight)
    for parameter in net.get_submodule("classifier").parameters():
        nn.init.zeros_(parameter)
    return net
