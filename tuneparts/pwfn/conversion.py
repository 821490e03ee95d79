"""Any net to one with Gaussian weights, and back to a plain one, by type of layer.

Every `nn.Linear` and `nn.Conv2d` is converted, the first and the last included, weights and biases;
norms and other layers stay as they are (Subia-Waud & Dasmahapatra 2023).
"""

import copy

from torch import nn

from tuneparts.errors import ConfigError
from tuneparts.models import surgery
from tuneparts.pwfn.gaussian import GaussianConv2d, GaussianLayer, GaussianLinear, GaussianTensor


def to_gaussian(net: nn.Module) -> list[str]:
    """Give every linear and convolution layer Gaussian weights, in place; names of the layers.

    Means are the weights so far and standard deviations the floor, so that nothing changes until
    `sigma.initialise` is called.
    """
    _check_convertible(net)
    names: list[str] = []
    if surgery.find(net, nn.Linear):
        names += surgery.replace(net, nn.Linear, lambda _, layer: GaussianLinear(layer))
    if surgery.find(net, nn.Conv2d):
        names += surgery.replace(net, nn.Conv2d, lambda _, layer: GaussianConv2d(layer))
    return names


def to_plain(net: nn.Module) -> nn.Module:
    """A copy with ordinary layers at the means: the same logits, bit for bit."""
    plain = copy.deepcopy(net)
    if surgery.find(plain, GaussianLinear):
        surgery.replace(plain, GaussianLinear, lambda _, layer: layer.plain())
    if surgery.find(plain, GaussianConv2d):
        surgery.replace(plain, GaussianConv2d, lambda _, layer: layer.plain())
    return plain


def layers(net: nn.Module) -> dict[str, GaussianLayer]:
    """All Gaussian layers by name, in the order of the net."""
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, GaussianLinear | GaussianConv2d)
    }


def tensors(net: nn.Module) -> dict[str, GaussianTensor]:
    """All Gaussian weights and biases by name, in the order of the net."""
    return {n: module for n, module in net.named_modules() if isinstance(module, GaussianTensor)}


def _check_convertible(net: nn.Module) -> None:
    found = {**surgery.find(net, nn.Linear), **surgery.find(net, nn.Conv2d)}
    if not found:
        raise ConfigError(
            "Gaussian weights need at least one Linear or Conv2d layer, but "
            f"{type(net).__name__} has none."
        )
    strange = {
        name: type(layer).__name__
        for name, layer in found.items()
        if type(layer) not in {nn.Linear, nn.Conv2d}
    }
    if strange:
        raise ConfigError(
            "only plain Linear and Conv2d layers can be given Gaussian weights, but subclasses "
            f"compute something else: {strange}. Convert before another method changes the net."
        )
    owners: dict[int, str] = {}
    for name, layer in found.items():
        other = owners.setdefault(id(layer.weight), name)
        if other != name:
            raise ConfigError(
                f"each layer must own its weight, but `{other}` and `{name}` share one. "
                "Share the layer instead of its weight."
            )
