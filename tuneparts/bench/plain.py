"""A training step as one writes it by hand in PyTorch: what `bench step` compares ours with.

Nets and loop are written as tutorials write them: layers in the order of the papers' tables, the
default layout, `matrix_exp`, `affine_grid` and `grid_sample` for the augmentation. Nothing is slow
on purpose. Data is on the device, there is no loader, and gradients are set to None.

Legend: B images, S samples of each, N = B * S.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tuneparts.models import DigitsCnn, FixupResNet, Mlp, MnistCnn, NetConfig, WideResNet

_GENERATORS = (
    ((0, 0, 1), (0, 0, 0), (0, 0, 0)),  # to the side
    ((0, 0, 0), (0, 0, 1), (0, 0, 0)),  # up and down
    ((0, -1, 0), (1, 0, 0), (0, 0, 0)),  # around
    ((1, 0, 0), (0, 0, 0), (0, 0, 0)),  # wider
    ((0, 0, 0), (0, 1, 0), (0, 0, 0)),  # higher
    ((0, 1, 0), (1, 0, 0), (0, 0, 0)),  # slanting
)


def plain_step(
    net: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    ranges: tuple[float, ...],
    batch_size: int,
    num_samples: int,
    is_tuned: bool = False,
) -> Callable[[], Tensor]:
    """Make a training step with Adam, as a function that returns its loss.

    Args:
        net: from images (N, C, H, W) to logits.
        images: all training images, uint8; a multiple of the batch size.
        labels: of the images.
        ranges: largest motion along each generator: x, y, rotation, two scales, shear.
        batch_size: B.
        num_samples: S.
        is_tuned: also take the two quick settings that torch's manual names: `channels_last` and
            the fused optimiser.
    """
    layout = torch.channels_last if is_tuned else torch.contiguous_format
    net = net.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=is_tuned or None)
    generator = torch.Generator().manual_seed(0)
    basis_6 = torch.tensor(_GENERATORS, dtype=torch.float32)
    largest_6 = torch.tensor(ranges)
    order: Iterator[Tensor] = iter(())

    def step() -> Tensor:
        nonlocal order
        indices = next(order, None)
        if indices is None:
            drawn = torch.randperm(len(images), generator=generator)
            order = iter(drawn.view(-1, batch_size))
            indices = next(order)
        x, y = images[indices].float().div_(255), labels[indices]
        x = x.repeat_interleave(num_samples, dim=0).contiguous(memory_format=layout)
        u_N6 = torch.rand(len(x), 6, generator=generator) * 2 - 1
        motions = torch.matrix_exp(torch.einsum("nk,kij->nij", u_N6 * largest_6, basis_6))
        grid = functional.affine_grid(motions[:, :2], list(x.shape), align_corners=True)
        x = functional.grid_sample(x, grid, align_corners=True)
        logits = net(x).view(batch_size, num_samples, -1).mean(dim=1)
        loss = functional.cross_entropy(logits, y)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    return step


def plain_net(config: NetConfig, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Write the net of a config by hand, at the same initial weights."""
    twin = config.build(in_shape, num_classes)
    channels = in_shape[0]
    written: nn.Module
    if isinstance(config, DigitsCnn):
        written = _pooled(channels, *config.channels, 3, _heads(twin))
    elif isinstance(config, MnistCnn):
        written = _pooled(channels, *config.channels, 5, _heads(twin))
    elif isinstance(config, FixupResNet):
        written = _Fixup(channels, config.planes, (config.depth - 2) // 6, num_classes)
    elif isinstance(config, WideResNet):
        written = _Wide(channels, int(config.width), (config.depth - 4) // 6, num_classes)
    else:
        assert isinstance(config, Mlp)
        sizes = _heads(twin)
        written = nn.Sequential(nn.Flatten(), *_linear(sizes, nn.GELU))
    with torch.no_grad():
        # Scalars stand before the convolutions of their block here, and among them in ours.
        for own, given in zip(in_order(written), in_order(twin), strict=True):
            own.copy_(given)
    return written


def in_order(net: nn.Module) -> list[nn.Parameter]:
    """Parameters of a net or of its twin so that they correspond: scalars first."""
    return sorted(net.parameters(), key=lambda parameter: parameter.numel() > 1)


def _heads(net: nn.Module) -> list[int]:
    """Units before, between and after the linear layers."""
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


def _linear(sizes: list[int], activation: type[nn.Module]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for num_in, num_out in pairwise(sizes):
        layers += [nn.Linear(num_in, num_out), activation()]
    return layers[:-1]


def _pooled(num_in: int, first: int, second: int, kernel: int, sizes: list[int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(num_in, first, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *_linear(sizes, nn.ReLU),
    )


def _conv(num_in: int, num_out: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(num_in, num_out, kernel, stride, padding=kernel // 2, bias=False)


class _FixupBlock(nn.Module):
    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.bias1a = nn.Parameter(torch.zeros(1))
        self.bias1b = nn.Parameter(torch.zeros(1))
        self.bias2a = nn.Parameter(torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1))
        self.bias2b = nn.Parameter(torch.zeros(1))
        self.conv1, self.conv2 = _conv(num_in, num_out, stride=stride), _conv(num_out, num_out)
        self.stride, self.num_new = stride, num_out - num_in

    def forward(self, x: Tensor) -> Tensor:
        shifted = x + self.bias1a
        out = functional.relu(self.conv1(shifted) + self.bias1b)
        out = self.conv2(out + self.bias2a) * self.scale + self.bias2b
        if self.stride != 1 or self.num_new:
            small = shifted[..., :: self.stride, :: self.stride]
            x = functional.pad(small, (0, 0, 0, 0, 0, self.num_new))
        return functional.relu(out + x)


class _Fixup(nn.Module):
    def __init__(self, num_in: int, planes: int, num_blocks: int, num_classes: int) -> None:
        super().__init__()
        self.stem = _conv(num_in, planes)
        self.stem_bias = nn.Parameter(torch.zeros(1))
        blocks, width = [], planes
        for stage in range(3):
            for number in range(num_blocks):
                stride = 2 if stage and not number else 1
                blocks.append(_FixupBlock(width, planes * 2**stage, stride))
                width = planes * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.head = _Head(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.stem(x) + self.stem_bias))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class _Head(nn.Module):
    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(x + self.bias)
        return logits


class _WideBlock(nn.Module):
    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(num_in), _conv(num_in, num_out, stride=stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(num_out), _conv(num_out, num_out)
        self.shortcut = _conv(num_in, num_out, 1, stride) if num_in != num_out else None

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.norm1(x))
        out: Tensor = self.conv2(functional.relu(self.norm2(self.conv1(active))))
        return out + (x if self.shortcut is None else self.shortcut(active))


class _Wide(nn.Module):
    def __init__(self, num_in: int, width: int, num_blocks: int, num_classes: int) -> None:
        super().__init__()
        self.stem = _conv(num_in, 16)
        blocks, channels = [], 16
        for stage in range(3):
            for number in range(num_blocks):
                stride = 2 if stage and not number else 1
                blocks.append(_WideBlock(channels, 16 * width * 2**stage, stride))
                channels = 16 * width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.blocks(self.stem(x))))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits
