"""Layers whose weights are Gaussians N(mu, sigma^2) (Subia-Waud & Dasmahapatra 2023, appendix).

Outside `sampled` a layer uses its means, bit for bit the layer it was made from. Inside, each
forward pass of a layer draws one weight w = mu + eps * max(sigma, 2^-30), shared by the batch.

Shapes: B batch, C channels, H height, W width, D features.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FLOOR = 2.0**-30
"""The least standard deviation that a weight is drawn with."""

_Pair: TypeAlias = tuple[int, int]


class GaussianTensor(nn.Module):
    """One weight or bias: means, standard deviations, and which entries are fixed.

    `sigma` is stored as it is, without a transform, so that the pull on it can be linear. The
    last draw stays in `eps` for the regulariser; it is no part of the state.
    """

    fixed: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.mu = nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
        self.sigma = nn.Parameter(
            torch.full_like(self.mu, FLOOR), requires_grad=value.requires_grad
        )
        self.register_buffer("fixed", torch.zeros_like(self.mu, dtype=torch.bool))
        self.eps: Tensor | None = None
        self.generator: torch.Generator | None = None
        """What draws; None for the means. Set by `sampled`."""

    def forward(self) -> Tensor:
        """The means, or one draw."""
        if self.generator is None:
            return self.mu
        self.eps = torch.randn(
            self.mu.shape, generator=self.generator, dtype=self.mu.dtype, device=self.mu.device
        )
        return torch.addcmul(self.mu, self.eps, self.sigma.clamp(min=FLOOR))


class GaussianLinear(nn.Module):
    """`nn.Linear` with Gaussian weight and bias."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features = layer.in_features
        self.out_features = layer.out_features
        self.weight = GaussianTensor(layer.weight)
        self.bias = None if layer.bias is None else GaussianTensor(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D')."""
        return F.linear(x, self.weight(), None if self.bias is None else self.bias())

    def plain(self) -> nn.Linear:
        """The ordinary layer at the means."""
        layer = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, device="meta"
        )
        return _filled(layer, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class GaussianConv2d(nn.Module):
    """`nn.Conv2d` with Gaussian weight and bias: any stride, padding, dilation and groups."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.stride = cast(_Pair, layer.stride)
        self.padding = cast("_Pair | str", layer.padding)
        self.dilation = cast(_Pair, layer.dilation)
        self.groups = layer.groups
        self.padding_mode = layer.padding_mode
        self._sides = list(layer._reversed_padding_repeated_twice)
        self.weight = GaussianTensor(layer.weight)
        self.bias = None if layer.bias is None else GaussianTensor(layer.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C', H', W')."""
        padding: _Pair | str = self.padding
        if self.padding_mode != "zeros":
            x_BCHW = F.pad(x_BCHW, self._sides, mode=self.padding_mode)
            padding = (0, 0)
        bias = None if self.bias is None else self.bias()
        return F.conv2d(
            x_BCHW, self.weight(), bias, self.stride, padding, self.dilation, self.groups
        )

    def plain(self) -> nn.Conv2d:
        """The ordinary layer at the means."""
        num_out, num_in_per_group, height, width = self.weight.mu.shape
        layer = nn.Conv2d(
            num_in_per_group * self.groups,
            num_out,
            (height, width),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            bias=self.bias is not None,
            padding_mode=self.padding_mode,
            device="meta",
        )
        return _filled(layer, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The shape and what is not at its default, for printing."""
        return f"{tuple(self.weight.mu.shape)}, stride={self.stride}, groups={self.groups}"


GaussianLayer = GaussianLinear | GaussianConv2d


@contextmanager
def sampled(net: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Draw weights from `generator` in every forward pass inside the block; means after it."""
    tensors = [module for module in net.modules() if isinstance(module, GaussianTensor)]
    for tensor in tensors:
        tensor.generator = generator
    try:
        yield
    finally:
        for tensor in tensors:
            tensor.generator = None


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def _filled(layer: Layer, weight: GaussianTensor, bias: GaussianTensor | None) -> Layer:
    layer.weight = _plain_parameter(weight)
    if bias is not None:
        layer.bias = _plain_parameter(bias)
    return layer


def _plain_parameter(tensor: GaussianTensor) -> nn.Parameter:
    return nn.Parameter(tensor.mu.detach().clone(), requires_grad=tensor.mu.requires_grad)
