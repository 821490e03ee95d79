"""A net that exists already, where a config names the net to build."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar, cast

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


class _Given:
    """Lets a config be pickled whose class was made at run time: it is made again on loading."""

    made_from: ClassVar[type[Config]]
    net_fields: ClassVar[tuple[str, ...]]

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self, Config)
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        nets = {name: fields.pop(name) for name in self.net_fields}
        return _given_again, (self.made_from, fields, nets)


def given_config(
    config_type: type[C], fields: Mapping[str, Any], **nets: GivenNet | Sequence[GivenNet]
) -> C:
    """Make a config of any method with existing nets in one of its fields.

    Configs travel as data and name their nets; one that holds nets can be pickled at most.

    Args:
        config_type: of the method.
        fields: all other fields.
        nets: by the name of the field, `net` or `members`.
    """
    types: dict[str, Any] = {
        name: (GivenNet if isinstance(given, GivenNet) else tuple[GivenNet, ...], ...)
        for name, given in nets.items()
    }
    return parse(_kind(config_type, types), {**fields, **nets})


def _kind(config_type: type[C], types: Mapping[str, Any]) -> type[C]:
    """A config class with nets in some fields, which knows what it was made from."""
    mixin = type("_Given", (_Given,), {"made_from": config_type, "net_fields": tuple(types)})
    bases: Any = (mixin, config_type)
    return cast(type[C], create_model(config_type.__name__, __base__=bases, **types))


def _given_again(config_type: type[C], fields: Mapping[str, Any], nets: Mapping[str, Any]) -> C:
    return given_config(config_type, fields, **nets)
