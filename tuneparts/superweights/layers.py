"""Which layers of which member take part in sharing, and how they are told apart.

Every convolution and linear layer shares weights but the last one, the head. Norms, biases and
heads stay private to a member (Teterwak et al. 2024, as released).
"""

from dataclasses import dataclass

from torch import nn

from tuneparts.errors import ConfigError

WeightLayer = nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class Layer:
    """One use of shared weights: a layer of a member."""

    member: int
    name: str
    """Of the module inside its net."""
    kind: str
    """Only layers of one kind can share: same type and same kernel."""
    num_out: int
    num_in: int
    """Per group of channels."""
    kernel: tuple[int, ...]
    """(height, width), or () of a linear layer."""

    @property
    def area(self) -> int:
        """Weights per pair of channels."""
        return self.kernel[0] * self.kernel[1] if self.kernel else 1

    @property
    def size(self) -> int:
        """Weights in all."""
        return self.num_out * self.num_in * self.area

    @property
    def fan_in(self) -> int:
        """Weights per output."""
        return self.num_in * self.area

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight tensor."""
        return (self.num_out, self.num_in, *self.kernel)


def layers_of(net: nn.Module, member: int) -> list[Layer]:
    """The layers of a net that share weights, in forward order; the head is left out."""
    found = {
        name: module for name, module in net.named_modules() if isinstance(module, WeightLayer)
    }
    *shared, _head = found.items() if found else [("", None)]
    if not shared:
        raise ConfigError(
            "a member needs a convolution or linear layer before its head to share weights, but "
            f"member {member} has {len(found)} such layers in all. Use a deeper net."
        )
    return [_layer(member, name, found[name]) for name, _ in shared]


def _layer(member: int, name: str, module: WeightLayer) -> Layer:
    num_out, num_in, *kernel = module.weight.shape
    if isinstance(module, nn.Linear):
        kind = "linear"
    else:
        # A grouped filter sees few channels: its first columns mean something else.
        kind = f"{'conv' if module.groups == 1 else 'grouped'}{kernel[0]}x{kernel[1]}"
    return Layer(member, name, kind, num_out, num_in, tuple(kernel))
