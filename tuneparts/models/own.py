"""A net of one's own: any function or `nn.Module` class, with its arguments."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import nn

from tuneparts.core import import_path, seeding
from tuneparts.core.errors import ConfigError
from tuneparts.models.net import NetConfig


class Own(NetConfig):
    """A net that a builder of one's own makes: `builder(in_shape, num_classes, **arguments)`.

    A builder is an `nn.Module` class or a function that returns a module. Its module maps inputs
    (B, *in_shape) to logits (B, num_classes), and is trained in training mode, whatever mode it
    came in. Its arguments are fields of this config, so that a search can vary them:
    `space={"net.width": ...}`.

    Example:
        >>> net = Own(name="torch.nn:Linear", bias=False)  # or `Own(nn.Linear, bias=False)`
        >>> net.model_dump()
        {'name': 'torch.nn:Linear', 'bias': False}
        >>> net.replaced({"bias": True}).arguments
        {'bias': True}
    """

    model_config = ConfigDict(extra="allow")

    name: str
    """Import path of the builder."""

    def __init__(self, builder: Callable[..., nn.Module] | None = None, /, **values: Any) -> None:
        if builder is not None:
            values = {"name": builder, **values}
        super().__init__(**values)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        """Name the builder, and refuse arguments that it does not take."""
        if not isinstance(values, dict):
            return values
        name = values.get("name")
        path = name if isinstance(name, str) else import_path.of(name)
        arguments = _plain({key: value for key, value in values.items() if key != "name"}, path)
        _check_arguments(_builder(path), path, arguments)
        return {"name": path, **arguments}

    @property
    def arguments(self) -> dict[str, Any]:
        """What the builder is called with besides the shapes."""
        return dict(self.model_extra or {})

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        net = _builder(self.name)(in_shape, num_classes, **self.arguments)
        if not isinstance(net, nn.Module):
            raise ConfigError(
                f"the builder of a net returns an nn.Module, but `{self.name}` returned "
                f"{net!r:.100}."
            )
        return net.train()


def check_own_nets(
    config: BaseModel, in_shape: tuple[int, ...], num_classes: int, *, is_whole: bool = False
) -> None:
    """Build every net of one's own in a config once, so that a bad one is refused here.

    Args:
        config: of a method; nets may stand anywhere in it.
        in_shape: shape of one input.
        num_classes: outputs per example.
        is_whole: whether inputs are whole numbers, such as tokens.

    Raises:
        ConfigError: A builder fails, or its net does not fit the data.
    """
    x = torch.zeros(2, *in_shape, dtype=torch.int64 if is_whole else torch.float32)
    for net in own_nets(config):
        try:
            with seeding.isolated(0, "check a net"), torch.no_grad():
                logits = net.build(in_shape, num_classes).eval()(x)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"`{net.name}` with {net.arguments} on two inputs of shape {in_shape} and "
                f"{num_classes} classes raised {type(error).__name__}: {error}"
            ) from error
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        if found != (2, num_classes):
            raise ConfigError(
                f"a net maps inputs (B, *in_shape) to logits (B, num_classes), here "
                f"{(2, num_classes)} for two inputs of shape {in_shape}, but `{net.name}` gave "
                f"{found}. End it with a layer of `num_classes` outputs."
            )


def nets_in(value: Any) -> list[NetConfig]:
    """All nets in a config, however deep inside."""
    if isinstance(value, NetConfig):
        return [value]
    if isinstance(value, BaseModel):
        value = [getattr(value, field) for field in type(value).model_fields]
    if isinstance(value, list | tuple):
        return [net for item in value for net in nets_in(item)]
    return []


def own_nets(value: Any) -> list[Own]:
    """Like `nets_in`, but nets of one's own only.

    Example:
        >>> [net.name for net in own_nets([Own(nn.Linear), 3])]
        ['torch.nn.modules.linear:Linear']
    """
    return [net for net in nets_in(value) if isinstance(net, Own)]


def _builder(path: str) -> Callable[..., Any]:
    found = import_path.find(path)
    if not callable(found):
        raise ConfigError(
            f"the builder of a net is a function or an nn.Module class, but `{path}` is {found!r}."
        )
    return found  # type: ignore[no-any-return]


def _plain(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Arguments as a worker reads them from JSON, so that all processes build the same net."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(arguments))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"arguments of a net travel as JSON: numbers, strings, and lists or dicts of them. "
            f"But for `{path}`: {error}."
        ) from None
    return plain


def _check_arguments(builder: Callable[..., Any], path: str, arguments: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(builder)
    except ValueError:  # written in C; building it will tell
        return
    try:
        signature.bind((1,), 1, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"a net is built by `builder(in_shape, num_classes, **arguments)`, but `{path}` takes "
            f"{signature} and got {arguments}: {error}."
        ) from None
