"""Nets without knowledge of any method: their configs here, their layers in a module of each.

A config field of type `Net` takes a net's config, a dict with its name, or the name alone. Your
own net is named by what builds it, see `Own`. No torch is imported here.

Example:
    >>> from tuneparts.nets import NETS, Mlp
    >>> net = Mlp(widths=(16,)).build((8,), num_classes=3)
    >>> sorted(NETS)[:3]
    ['digits_cnn', 'fixup_resnet', 'imagenet_densenet161']
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SerializeAsAny,
    model_validator,
)

from tuneparts.core import import_path, seeding
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn


class NetConfig(Config):
    """The base of all net configs.

    A subclass narrows `name` to a literal, by which a config written as data finds its class.
    """

    name: str
    """The net's name in `models.NETS`."""
    builder: ClassVar[str] = ""
    """Import path of `f(config, in_shape, num_classes) -> nn.Module`."""
    least_side: ClassVar[int] = 1
    """Pixels that a side of an image must have; 0 where inputs need not be images."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """A net from (B, *in_shape) to logits (B, num_classes); call it in `seeding.isolated`."""
        least = self.least_side
        if least and (len(in_shape) != 3 or min(in_shape[1:]) < least):
            raise ConfigError(
                f"`{self.name}` takes images (C, H, W) of at least {least}x{least} pixels, but got "
                f"inputs of shape {in_shape}. Use `mlp` for vectors, or a net that pools less."
            )
        net: nn.Module = import_path.find(self.builder)(self, in_shape, num_classes)
        return net


def _check_depth(depth: int, rest: int) -> int:
    if depth < 6 + rest or depth % 6 != rest:
        raise ValueError(
            f"depth {depth}: must be 6n + {rest} with n >= 1, such as {6 + rest} or {12 + rest}."
        )
    return depth


class Mlp(NetConfig):
    """Linear layers with an activation and a dropout slot after each but the last."""

    builder = "tuneparts.nets.small:_mlp"
    least_side = 0
    name: Literal["mlp"] = "mlp"
    widths: tuple[PositiveInt, ...] = (256, 256)
    """Units of the hidden layers; none makes a linear classifier."""
    activation: Literal["relu", "gelu"] = "gelu"
    """After each layer but the last."""


class MnistCnn(NetConfig):
    """Two 5x5 convolutions with pooling, then three linear layers."""

    builder = "tuneparts.nets.small:_cnn"
    least_side = 4
    name: Literal["mnist_cnn"] = "mnist_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (20, 50)
    """Output channels of the convolutions."""
    hidden: tuple[PositiveInt, PositiveInt] = (500, 50)
    """Units of the hidden linear layers."""


class DigitsCnn(NetConfig):
    """Two 3x3 convolutions with pooling, then two linear layers."""

    builder = "tuneparts.nets.small:_cnn"
    least_side = 4
    name: Literal["digits_cnn"] = "digits_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (16, 32)
    """Output channels of the convolutions."""
    hidden: PositiveInt = 64
    """Units of the hidden linear layer."""


class FixupResNet(NetConfig):
    """FixUp ResNet of depth 8, 14, 20, ..."""

    builder = "tuneparts.nets._resnets:_fixup_resnet"
    name: Literal["fixup_resnet"] = "fixup_resnet"
    depth: Annotated[int, AfterValidator(partial(_check_depth, rest=2))] = 8
    """Layers with weights: 6n + 2 for n blocks a stage."""
    planes: PositiveInt = 16
    """Channels of the first stage; each further stage has twice as many."""


class WideResNet(NetConfig):
    """Wide ResNet with BatchNorm; WRN-16-1 by default."""

    builder = "tuneparts.nets._resnets:_wide_resnet"
    name: Literal["wide_resnet"] = "wide_resnet"
    depth: Annotated[int, AfterValidator(partial(_check_depth, rest=4))] = 16
    """N: layers with weights, 6n + 4 for n blocks a stage."""
    width: PositiveInt | PositiveFloat = 1
    """D: multiple of 16, 32 and 64 channels, rounded where D is not whole."""
    skip: Literal["conv", "identity"] = "conv"
    """Shortcut where the shape changes: 1x1 convolution, or identity padded with zeros."""


class ResNet50Gn(NetConfig):
    """Pre-activation ResNet with two groups in each norm and identity skips."""

    builder = "tuneparts.nets._resnets:_resnet50_gn"
    name: Literal["resnet50_gn"] = "resnet50_gn"
    num_per_stage: PositiveInt = 8
    """Blocks in each of the three stages; n give 6n + 2 layers."""
    groups: Literal[1, 2, 4, 8, 16] = 2
    """Groups of each GroupNorm; divides the 16 channels of the stem."""


class ResNet9(NetConfig):
    """Eight convolutions, two residual blocks, and a linear layer without bias."""

    builder = "tuneparts.nets._resnets:_resnet9"
    least_side = 8
    name: Literal["resnet9"] = "resnet9"
    width: PositiveInt = 64
    """Channels of the stem; the stages have 2, 4 and 8 times as many."""
    groups: PositiveInt = 2
    """Groups of each GroupNorm."""

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.width % self.groups:
            raise ValueError(f"`groups` = {self.groups}: must divide `width` = {self.width}.")
        return self


class ResNet18(NetConfig):
    """Four stages of two basic blocks."""

    builder = "tuneparts.nets._resnets:_resnet18"
    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64
    """Channels of the first stage; each further stage has twice as many."""
    stem_pool: bool = False
    """Halve the image once more, by 3x3 max pooling after the stem: a quarter of the cost."""


class MobileNetV2(NetConfig):
    """MobileNetV2 with a dropout slot before its classifier."""

    builder = "tuneparts.nets._resnets:_mobilenet_v2"
    name: Literal["mobilenet_v2"] = "mobilenet_v2"
    width: PositiveFloat = 1.0
    """Multiple of all channel counts, rounded to multiples of eight."""


class Imagenet(NetConfig):
    """A net as torchvision builds it, with weights at their initialisation."""

    builder = "tuneparts.nets._resnets:_imagenet"
    least_side = 32
    name: Literal[
        "imagenet_resnet18",
        "imagenet_resnet34",
        "imagenet_resnet50",
        "imagenet_wide_resnet50_2",
        "imagenet_densenet161",
    ]


NETS: Mapping[str, type[NetConfig]] = {
    name: cls
    for cls in NetConfig.__subclasses__()  # those above; the ones below are not known by name
    for name in get_args(cls.model_fields["name"].annotation)
}
"""Every name of ours that a net can be asked for by, and the config behind it."""
REGISTRY = Registry(
    "net",
    {name: f"{__name__}:{cls.__name__}" for name, cls in NETS.items()},
    group="tuneparts.nets",
)
"""Our own names lead to configs; import paths, and entry points of packages, to builders."""


class MsdNet(NetConfig):
    """A net with several exits; by default the released one for anytime prediction on CIFAR.

    As a net among others it predicts what its last exit does.

    Example:
        >>> MsdNet(exits=5, base=1, step=1, spacing="linear").layers
        (1, 2, 3, 4, 5)
    """

    builder = "tuneparts.nets.msdnet:_msdnet"
    name: Literal["msdnet"] = "msdnet"
    exits: PositiveInt = 10
    """Classifiers."""
    base: PositiveInt = 4
    """Layers before the first classifier."""
    step: PositiveInt = 2
    """Layers from one classifier to the next, see `spacing`."""
    spacing: Literal["even", "linear"] = "even"
    """`even` has `step` layers before each further classifier, `linear` has `step` more before each
    than before the last: step + 1, 2 step + 1, and so on."""
    channels: PositiveInt = 16
    """Channels that the first layer has, times the factor of a scale."""
    growth: PositiveInt = 6
    """Channels that each further layer adds, times the factor of a scale."""
    growth_factors: tuple[PositiveInt, ...] = Field(default=(1, 2, 4), min_length=1)
    """Of each scale, the finest first."""
    bottleneck_factors: tuple[PositiveInt, ...] = Field(default=(1, 2, 4), min_length=1)
    """Channels between the two convolutions of a layer, as a multiple of those that it adds; by the
    scale that the first of them reads."""
    exit_channels: PositiveInt = 128
    """Channels of the two convolutions of each classifier."""

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        growth = self.growth_factors
        if len(growth) != len(self.bottleneck_factors):
            raise ValueError(
                f"`growth_factors` = {growth} and `bottleneck_factors` = "
                f"{self.bottleneck_factors}: must be one each for every scale."
            )
        if any(self.growth * factor % 2 for factor in growth[1:]):
            # Half of what a layer adds to a coarse scale comes from the finer one.
            raise ValueError(f"`growth` = {self.growth} times factors {growth[1:]}: must be even.")
        return self

    @property
    def layers(self) -> tuple[int, ...]:
        """Number of layers before each classifier, counted from the one before."""
        is_even = self.spacing == "even"
        further = (self.step if is_even else self.step * i + 1 for i in range(1, self.exits))
        return (self.base, *further)


class Own(NetConfig):
    """A net that your own builder makes: `builder(in_shape, num_classes, **arguments)`.

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
    """Import path of the builder, or the name that an installed package gives it."""

    def __init__(self, builder: Callable[..., Any] | None = None, /, **values: Any) -> None:
        super().__init__(**({} if builder is None else {"name": builder}), **values)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        arguments = dict(values)
        name = arguments.pop("name", None)
        path = name if isinstance(name, str) else import_path.of(name)
        try:
            # As a worker reads them, so that all processes build the same net.
            arguments = json.loads(json.dumps(arguments))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"arguments of `{path}` travel as JSON, but: {error}. Use numbers, strings, and "
                "lists or dicts of them."
            ) from None
        builder = REGISTRY.find(path)
        try:
            inspect.signature(builder).bind((1,), 1, **arguments)
        except TypeError as error:
            raise ConfigError(
                f"`{path}` must build a net when called with (in_shape, num_classes) and "
                f"{arguments}, but: {error}."
            ) from None
        except ValueError:  # written in C; building it will show
            pass
        return {"name": path, **arguments}

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        from torch import nn

        net = REGISTRY.find(self.name)(in_shape, num_classes, **self.arguments)
        if not isinstance(net, nn.Module):
            raise ConfigError(
                f"a builder returns an nn.Module, but `{self.name}` returned {net!r}."
            )
        return net.train()


class GivenNet(Own):
    """Hands out a net that exists, in training mode, as often as a method builds one."""

    _make: "Callable[[], nn.Module]" = PrivateAttr()

    def __init__(self, make: "Callable[[], nn.Module]") -> None:
        super().__init__(name="given")
        self._make = make

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        return values  # no import path, and no arguments

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "nn.Module":  # noqa: ARG002
        return self._make().train()


def _parsed(value: Any) -> Any:
    """A net's config from its config, a dict with a name, a name, or a builder."""
    if isinstance(value, NetConfig):
        return value
    is_object = callable(value) and not hasattr(value, "__qualname__")  # such as a built net
    if is_object or (isinstance(value, type) and issubclass(value, NetConfig)):
        raise ValueError(
            "a net is given by what builds it, so that every trial has its own: a config such as "
            f"`Mlp()`, a function, or an nn.Module class; but got {value!r:.100}."
        )
    if isinstance(value, str) or callable(value):
        value = {"name": value}
    if not isinstance(value, Mapping) or value.get("name") is None:
        raise ValueError(
            f"a net is a config, a name, or a dict that needs a `name`; but got {value!r:.100}."
        )
    name = value["name"]
    if isinstance(name, str) and name in NETS:
        return NETS[name].model_validate(dict(value))
    try:
        if not callable(name):
            REGISTRY.path_of(name)
    except UnknownNameError as error:  # pydantic turns only ValueErrors into its own report
        raise ValueError(f"{error} Or name your own by import path, `module:build`.") from None
    return Own.model_validate(dict(value))


Net: TypeAlias = Annotated[SerializeAsAny[NetConfig], BeforeValidator(_parsed)]
"""The type of a config field; your own builder, or its import path, is a name too."""


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
    """Like `nets_in`, but your own nets only."""
    return [net for net in nets_in(value) if isinstance(net, Own)]


def check_own_nets(
    config: BaseModel, in_shape: tuple[int, ...], num_classes: int, *, is_whole: bool = False
) -> None:
    """Build each net of your own in a config once, to refuse a bad one; on tokens if `is_whole`."""
    import torch

    x = torch.zeros(2, *in_shape, dtype=torch.int64 if is_whole else torch.float32)
    for net in own_nets(config):
        try:
            with seeding.isolated(0, "check a net"), torch.no_grad():
                logits = net.build(in_shape, num_classes).eval()(x)
        except Exception as error:
            raise ConfigError(
                f"`{net.name}` with {net.arguments} on two inputs of shape {in_shape} and "
                f"{num_classes} classes raised {type(error).__name__}: {error}"
            ) from error
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        if found != (2, num_classes):
            raise ConfigError(
                f"`{net.name}` gave {found} for two inputs of shape {in_shape}, not logits "
                f"{(2, num_classes)}. End it with a layer of `num_classes` outputs."
            )
