"""Narrower nets of the same kind, so that an ensemble has as many parameters as one wide net.

The thin ensemble is the fair control of any method that shares weights between members: it spends
the same budget without sharing anything.
"""

from collections.abc import Sequence

import torch

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.models import DigitsCnn, Mlp, MobileNetV2, NetConfig, WideResNet
from tuneparts.models.sizes import count_parameters

_STEPS = 1024
"""Widths are tried in this many steps between nothing and the full width."""


def narrowed(net: NetConfig, factor: float) -> NetConfig:
    """Multiply all widths of a net by a factor, at least one unit each.

    Example:
        >>> from tuneparts.models import Mlp
        >>> narrowed(Mlp(widths=(64, 32)), 0.5).widths
        (32, 16)
    """

    def units(number: int) -> int:
        return max(1, round(factor * number))

    match net:
        case WideResNet() | MobileNetV2():
            return net.replaced({"width": factor * net.width})
        case Mlp():
            return net.replaced({"widths": tuple(map(units, net.widths))})
        case DigitsCnn():
            channels = tuple(map(units, net.channels))
            return net.replaced({"channels": channels, "hidden": units(net.hidden)})
    raise ConfigError(
        f"a thin ensemble is made of nets with a width, but `{net.name}` has none. "
        "Use `wide_resnet`, `mobilenet_v2`, `digits_cnn` or `mlp`."
    )


def thinned(
    nets: Sequence[NetConfig], budget: int, *, in_shape: tuple[int, ...], num_classes: int
) -> list[NetConfig]:
    """Narrow nets, all by the largest factor up to 1 with which they fit a budget together.

    Args:
        nets: the nets at full width.
        budget: most trainable parameters of all nets together.
        in_shape: shape of one input.
        num_classes: logits per example.
    """

    def size(step: int) -> int:
        chosen = [narrowed(net, step / _STEPS) for net in nets] if step < _STEPS else nets
        # Shapes are all that counts; initialisation on the meta device writes nothing.
        with seeding.isolated(0, "sizes"), torch.device("meta"):
            return sum(count_parameters(net.build(in_shape, num_classes)) for net in chosen)

    if size(_STEPS) <= budget:
        return list(nets)
    low, high = 1, _STEPS
    if size(low) > budget:
        raise ConfigError(
            f"{len(nets)} nets need at least {size(low)} parameters, but the budget is {budget}. "
            "Raise it, or use fewer members."
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= budget else (low, middle)
    return [narrowed(net, low / _STEPS) for net in nets]
