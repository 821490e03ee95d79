"""Nets whose weights are Gaussians N(mu, sigma^2) (Subia-Waud & Dasmahapatra 2023, appendix).

`to_gaussian` converts every `nn.Linear` and `nn.Conv2d` of a net, the first and the last included,
weights and biases; norms and other layers stay as they are. A converted layer uses its means, bit
for bit the layer it was made from. Inside `sampled`, each forward pass of a layer draws one weight
w = mu + eps * max(sigma, 2^-30) with eps ~ N(0, 1), shared by the batch.

Shapes: B batch, C channels, H height, W width, D features, S draws, K classes.
"""

import copy
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.errors import ConfigError
from tuneparts.models import surgery

FLOOR = 2.0**-30
"""Smallest standard deviation that a weight is drawn with."""

_Pair: TypeAlias = tuple[int, int]


class GaussianTensor(nn.Module):
    """One weight or bias tensor: means, standard deviations, and which entries are fixed.

    `sigma` is stored directly, without softplus or logarithm, because the regulariser's gradient
    is linear in it. `eps` keeps the last draw for the regulariser; it is not part of the state.
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
        """Source of the draws; None to use the means. Set by `sampled`."""

    def forward(self) -> Tensor:
        """Return the means, or one draw inside `sampled`."""
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
        """Make the ordinary layer whose weights are the means."""
        layer = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, device="meta"
        )
        return _filled(layer, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Describe the sizes, for printing."""
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
        """Make the ordinary layer whose weights are the means."""
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
        """Describe the shape, stride and groups, for printing."""
        return f"{tuple(self.weight.mu.shape)}, stride={self.stride}, groups={self.groups}"


GaussianLayer = GaussianLinear | GaussianConv2d


@contextmanager
def sampled(net: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Draw new weights from `generator` in every forward pass inside the block."""
    drawn = tensors(net).values()
    for tensor in drawn:
        tensor.generator = generator
    try:
        yield
    finally:
        for tensor in drawn:
            tensor.generator = None


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def _filled(layer: Layer, weight: GaussianTensor, bias: GaussianTensor | None) -> Layer:
    layer.weight = _plain_parameter(weight)
    if bias is not None:
        layer.bias = _plain_parameter(bias)
    return layer


def _plain_parameter(tensor: GaussianTensor) -> nn.Parameter:
    return nn.Parameter(tensor.mu.detach().clone(), requires_grad=tensor.mu.requires_grad)


def to_gaussian(net: nn.Module, names: Collection[str] | None = None) -> list[str]:
    """Give every linear and convolution layer Gaussian weights, in place.

    Means start as the weights so far, and standard deviations at the floor: predictions do not
    change until `sigma.initialise` is called.

    Args:
        net: what to change.
        names: of the layers to convert; all if None.

    Returns:
        Names of the converted layers.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> to_gaussian(net)
        ['0', '2']
        >>> net[0].weight.sigma.shape
        torch.Size([3, 2])
    """
    chosen = _convertible(net, names)
    _check_owned(net, chosen)
    if any(isinstance(layer, nn.Linear) for layer in chosen.values()):
        surgery.replace(
            net, nn.Linear, lambda name, old: GaussianLinear(old) if name in chosen else old
        )
    if any(isinstance(layer, nn.Conv2d) for layer in chosen.values()):
        surgery.replace(
            net, nn.Conv2d, lambda name, old: GaussianConv2d(old) if name in chosen else old
        )
    return list(chosen)


def to_plain(net: nn.Module) -> nn.Module:
    """Copy a net with ordinary layers at the means: the same logits, bit for bit."""
    plain = copy.deepcopy(net)
    if surgery.find(plain, GaussianLinear):
        surgery.replace(plain, GaussianLinear, lambda _, layer: layer.plain())
    if surgery.find(plain, GaussianConv2d):
        surgery.replace(plain, GaussianConv2d, lambda _, layer: layer.plain())
    return plain


def layers(net: nn.Module) -> dict[str, GaussianLayer]:
    """Find all Gaussian layers by name, in the order of the net."""
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, GaussianLinear | GaussianConv2d)
    }


def tensors(net: nn.Module) -> dict[str, GaussianTensor]:
    """Find all Gaussian weights and biases by name, in the order of the net."""
    return {n: module for n, module in net.named_modules() if isinstance(module, GaussianTensor)}


def _convertible(net: nn.Module, names: Collection[str] | None) -> dict[str, nn.Linear | nn.Conv2d]:
    """Find the layers to convert; refuses subclasses, which compute something else."""
    found: dict[str, nn.Linear | nn.Conv2d] = {
        **surgery.find(net, nn.Linear),
        **surgery.find(net, nn.Conv2d),
    }
    chosen = {name: layer for name, layer in found.items() if names is None or name in names}
    if not chosen:
        raise ConfigError(
            "Gaussian weights need at least one Linear or Conv2d layer, but "
            f"{type(net).__name__} has none."
        )
    strange = {
        name: type(layer).__name__
        for name, layer in chosen.items()
        if type(layer) not in {nn.Linear, nn.Conv2d}
    }
    if strange:
        raise ConfigError(
            "only plain Linear and Conv2d layers can be given Gaussian weights, but subclasses "
            f"compute something else: {strange}. Convert before another method changes the net."
        )
    return chosen


def _check_owned(net: nn.Module, chosen: Collection[str]) -> None:
    """Refuse weights that another layer of any kind uses as well: they would come apart."""
    owners: dict[int, str] = {}
    for name, module in net.named_modules():
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            other = owners.setdefault(id(parameter), name)
            if other != name and (other in chosen or name in chosen):
                raise ConfigError(
                    f"each layer must own its weight, but `{other}` and `{name}` share one. "
                    "Share the layer instead of its weight."
                )


def ensemble_logits(
    net: nn.Module,
    predict: Callable[[], Tensor],
    *,
    num_samples: int,
    generator: torch.Generator,
) -> Tensor:
    """Average predictions over draws of the weights.

    Args:
        net: the net whose weights are drawn.
        predict: computes logits (B, K) with the net.
        num_samples: number of draws.
        generator: source of the draws.

    Returns:
        Log of the mean predicted probability: float64 (B, K).
    """
    with sampled(net, generator):
        log_probs_SBK = torch.stack(
            [torch.log_softmax(predict().double(), dim=1) for _ in range(num_samples)]
        )
    return log_probs_SBK.logsumexp(dim=0) - math.log(num_samples)
