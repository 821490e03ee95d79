"""A net that exists already, where a config names the net to build."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import PrivateAttr, model_validator
from torch import nn

from tuneparts.core.config import Config, parse
from tuneparts.models.own import Own

C = TypeVar("C", bound=Config)


class GivenNet(Own):
    """Hands out a net that exists, in training mode, whatever mode it came in.

    Args:
        make: returns the net; called as often as a method builds one.
    """

    _make: Callable[[], nn.Module] = PrivateAttr()

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__(name="given")
        self._make = make

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        return values  # no import path, and no arguments

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:  # noqa: ARG002
        return self._make().train()


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Give the layers of a net their modes, training or evaluation, back after the block.

    Layers are known by their names, so one that took another's place takes over its mode.
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
    """Make a config of any method with existing nets in one of its fields, `net` or `members`.

    Configs travel as data and name their nets; one that holds nets can be pickled at most.
    """
    return parse(config_type, {**fields, **nets})
