"""A net that exists already, where a config names the net to build."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from pydantic import PrivateAttr, create_model
from torch import nn

from tuneparts.config import Config, parse
from tuneparts.models.net import NetConfig

C = TypeVar("C", bound=Config)


class GivenNet(NetConfig):
    """Hands out a net that exists, in training mode, whatever mode it came in.

    Args:
        make: returns the net; called as often as a method builds one.
    """

    name: Literal["given"] = "given"
    _make: Callable[[], nn.Module] = PrivateAttr()

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__(name="given")
        self._make = make

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:  # noqa: ARG002
        return self._make().train()


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Give the layers of a net their modes, training or evaluation, back after the block.

    Layers are known by their names, so one that took another's place takes over its mode.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.5)).eval()
        >>> with modes_kept(net):
        ...     net = net.train()
        >>> net[0].training
        False
    """
    modes = {name: layer.training for name, layer in net.named_modules()}
    try:
        yield
    finally:
        for name, layer in net.named_modules():
            layer.training = modes.get(name, modes[""])


def given_config(
    config_type: type[C], fields: Mapping[str, Any], **nets: GivenNet | Sequence[GivenNet]
) -> C:
    """Make a config of any method with existing nets in one of its fields.

    Configs travel as data and name their nets; one that holds nets stays in this process.

    Args:
        config_type: of the method.
        fields: all other fields.
        nets: by the name of the field, `net` or `members`.
    """
    types: dict[str, Any] = {
        name: (GivenNet if isinstance(given, GivenNet) else tuple[GivenNet, ...], ...)
        for name, given in nets.items()
    }
    kind = create_model(config_type.__name__, __base__=config_type, **types)
    return parse(kind, {**fields, **nets})
