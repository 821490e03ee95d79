"""Configs of all nets, without torch: a name, a few sizes, and `build`.

A config field of type `Net` takes a net's config, a dict with its name, or the name alone. A net of
one's own is named by what builds it, see `Own`.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from tuneparts.core import import_path, seeding
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from tuneparts.models.msdnet import MultiScaleDense

_HERE = "tuneparts.models.config"
REGISTRY = Registry(
    "net",
    {
        "mlp": f"{_HERE}:Mlp",
        "mnist_cnn": f"{_HERE}:MnistCnn",
        "digits_cnn": f"{_HERE}:DigitsCnn",
        "fixup_resnet": f"{_HERE}:FixupResNet",
        "wide_resnet": f"{_HERE}:WideResNet",
        "resnet50_gn": f"{_HERE}:ResNet50Gn",
        "resnet9": f"{_HERE}:ResNet9",
        "resnet18": f"{_HERE}:ResNet18",
        "mobilenet_v2": f"{_HERE}:MobileNetV2",
        "imagenet_resnet18": f"{_HERE}:Imagenet",
        "imagenet_resnet34": f"{_HERE}:Imagenet",
        "imagenet_resnet50": f"{_HERE}:Imagenet",
        "imagenet_wide_resnet50_2": f"{_HERE}:Imagenet",
        "imagenet_densenet161": f"{_HERE}:Imagenet",
    },
    group="tuneparts.nets",
)
"""Our own names lead to configs; import paths, and entry points of packages, to builders."""
C = TypeVar("C", bound=Config)


class NetConfig(Config):
    """The base of all net configs.

    A subclass narrows `name` to a literal, by which a config written as data finds its class.
    """

    name: str
    """The net's name in `models.NETS`."""
    builder: ClassVar[str] = ""
    """Import path of `f(config, in_shape, num_classes) -> nn.Module`."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """Build an initialised net from inputs (B, *in_shape) to logits (B, num_classes).

        Initialisation draws from torch's global generator; wrap the call in `seeding.isolated`.
        """
        net: nn.Module = import_path.find(self.builder)(self, in_shape, num_classes)
        return net


def image_shape(config: NetConfig, in_shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """`in_shape` as (C, H, W); refuses vectors, and sides below `least` pixels."""
    if len(in_shape) != 3:
        raise ConfigError(
            f"`{config.name}` takes images of shape (C, H, W), but got inputs of shape {in_shape}. "
            "Use `mlp` for vectors."
        )
    channels, height, width = in_shape
    if min(height, width) < least:
        raise ConfigError(
            f"`{config.name}` needs images of at least {least}x{least} pixels, but got "
            f"{height}x{width}. Use a net that pools less, such as `digits_cnn` or `mlp`."
        )
    return channels, height, width


class Mlp(NetConfig):
    """Linear layers with an activation and a dropout slot after each but the last."""

    builder = "tuneparts.models.small:_mlp"
    name: Literal["mlp"] = "mlp"
    widths: tuple[PositiveInt, ...] = (256, 256)
    """Units of the hidden layers; none makes a linear classifier."""
    activation: Literal["relu", "gelu"] = "gelu"
    """After each layer but the last."""


class DigitsCnn(NetConfig):
    """Two 3x3 convolutions with pooling, then two linear layers."""

    builder = "tuneparts.models.small:_digits_cnn"
    name: Literal["digits_cnn"] = "digits_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (16, 32)
    """Output channels of the convolutions."""
    hidden: PositiveInt = 64
    """Units of the hidden linear layer."""


class MnistCnn(NetConfig):
    """Two 5x5 convolutions with pooling, then three linear layers."""

    builder = "tuneparts.models.small:_mnist_cnn"
    name: Literal["mnist_cnn"] = "mnist_cnn"
    channels: tuple[PositiveInt, PositiveInt] = (20, 50)
    """Output channels of the convolutions."""
    hidden: tuple[PositiveInt, PositiveInt] = (500, 50)
    """Units of the hidden linear layers."""


class FixupResNet(NetConfig):
    """FixUp ResNet of depth 8, 14, 20, ..."""

    builder = "tuneparts.models.fixup_resnet:_fixup_resnet"
    name: Literal["fixup_resnet"] = "fixup_resnet"
    depth: int = 8
    """Layers with weights: 6n + 2 for n blocks a stage."""
    planes: PositiveInt = 16
    """Channels of the first stage; each further stage has twice as many."""

    @field_validator("depth")
    @classmethod
    def _check_depth(cls, depth: int) -> int:
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth {depth}: must be 6n + 2 with n >= 1, such as 8, 14 or 20.")
        return depth


class WideResNet(NetConfig):
    """Wide ResNet with BatchNorm; WRN-16-1 by default."""

    builder = "tuneparts.models.wide_resnet:_wide_resnet"
    name: Literal["wide_resnet"] = "wide_resnet"
    depth: int = 16
    """N: layers with weights, 6n + 4 for n blocks a stage."""
    width: PositiveInt | PositiveFloat = 1
    """D: multiple of 16, 32 and 64 channels, rounded where D is not whole."""
    skip: Literal["conv", "identity"] = "conv"
    """Shortcut where the shape changes: 1x1 convolution, or identity padded with zeros."""

    @field_validator("depth")
    @classmethod
    def _check_depth(cls, depth: int) -> int:
        if depth < 10 or depth % 6 != 4:
            raise ValueError(f"depth {depth}: must be 6n + 4 with n >= 1, such as 10, 16 or 28.")
        return depth


class ResNet50Gn(NetConfig):
    """Pre-activation ResNet with two groups in each norm and identity skips."""

    builder = "tuneparts.models.wide_resnet:_resnet50_gn"
    name: Literal["resnet50_gn"] = "resnet50_gn"
    num_per_stage: PositiveInt = 8
    """Blocks in each of the three stages; n give 6n + 2 layers."""
    groups: Literal[1, 2, 4, 8, 16] = 2
    """Groups of each GroupNorm; divides the 16 channels of the stem."""


class ResNet9(NetConfig):
    """Eight convolutions, two residual blocks, and a linear layer without bias."""

    builder = "tuneparts.models.resnets:_resnet9"
    name: Literal["resnet9"] = "resnet9"
    width: PositiveInt = 64
    """Channels of the stem; the stages have 2, 4 and 8 times as many."""
    groups: PositiveInt = 2
    """Groups of each GroupNorm."""

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.width % self.groups:
            raise ValueError(
                f"`groups` must divide `width`, but got {self.groups} groups for {self.width} "
                f"channels. Use a divisor of {self.width} as `groups`."
            )
        return self


class ResNet18(NetConfig):
    """Four stages of two basic blocks."""

    builder = "tuneparts.models.resnets:_resnet18"
    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64
    """Channels of the first stage; each further stage has twice as many."""
    stem_pool: bool = False
    """Halve the image once more, by 3x3 max pooling after the stem: a quarter of the cost."""


class MobileNetV2(NetConfig):
    """MobileNetV2 with a dropout slot before its classifier."""

    builder = "tuneparts.models.mobilenet_v2:_mobilenet_v2"
    name: Literal["mobilenet_v2"] = "mobilenet_v2"
    width: PositiveFloat = 1.0
    """Multiple of all channel counts, rounded to multiples of eight."""


class Imagenet(NetConfig):
    """A net as torchvision builds it, with weights at their initialisation."""

    builder = "tuneparts.models.resnets:_imagenet"
    name: Literal[
        "imagenet_resnet18",
        "imagenet_resnet34",
        "imagenet_resnet50",
        "imagenet_wide_resnet50_2",
        "imagenet_densenet161",
    ]


class MsdNet(NetConfig):
    """A net with several exits; by default the released one for anytime prediction on CIFAR.

    As a net among others it predicts what its last exit does.

    Example:
        >>> MsdNet(exits=5, base=1, step=1, spacing="linear").layers
        (1, 2, 3, 4, 5)
    """

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
        if len(self.growth_factors) != len(self.bottleneck_factors):
            raise ValueError(
                "every scale has a growth and a bottleneck factor, but got "
                f"{self.growth_factors} and {self.bottleneck_factors}. Give both as many."
            )
        odd = [f for f in self.growth_factors[1:] if self.growth * f % 2]
        if odd:
            raise ValueError(
                "half of what a layer adds to a coarse scale comes from the finer one, so `growth` "
                f"times its factor is even, but got {self.growth} times {odd[0]}. Use an even one."
            )
        return self

    @property
    def layers(self) -> tuple[int, ...]:
        """Number of layers before each classifier, counted from the one before."""
        further = range(1, self.exits)
        if self.spacing == "even":
            return (self.base, *(self.step for _ in further))
        return (self.base, *(self.step * i + 1 for i in further))

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "MultiScaleDense":
        from tuneparts.models.msdnet import msdnet

        return msdnet(self, in_shape, num_classes)


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
    """Import path of the builder, or the name that an installed package gives it."""

    def __init__(self, builder: Callable[..., Any] | None = None, /, **values: Any) -> None:
        super().__init__(**({} if builder is None else {"name": builder}), **values)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        """Name the builder, and refuse arguments that it does not take."""
        if not isinstance(values, dict):
            return values
        name = values.get("name")
        path = name if isinstance(name, str) else import_path.of(name)
        arguments = {key: value for key, value in values.items() if key != "name"}
        try:
            # As a worker reads them, so that all processes build the same net.
            arguments = json.loads(json.dumps(arguments))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"arguments of a net travel as JSON: numbers, strings, and lists or dicts of them. "
                f"But for `{path}`: {error}."
            ) from None
        builder = _own_builder(path)
        try:
            signature = inspect.signature(builder)
        except ValueError:  # written in C; building it will show
            return {"name": path, **arguments}
        try:
            signature.bind((1,), 1, **arguments)
        except TypeError as error:
            raise ConfigError(
                f"a net is built by `builder(in_shape, num_classes, **arguments)`, but `{path}` "
                f"takes {signature} and got {arguments}: {error}."
            ) from None
        return {"name": path, **arguments}

    @property
    def arguments(self) -> dict[str, Any]:
        """What the builder is called with besides the shapes."""
        return dict(self.model_extra or {})

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        from torch import nn

        net = _own_builder(self.name)(in_shape, num_classes, **self.arguments)
        if not isinstance(net, nn.Module):
            raise ConfigError(
                f"the builder of a net returns an nn.Module, but `{self.name}` returned "
                f"{net!r:.100}."
            )
        return net.train()


def _own_builder(name: str) -> Callable[..., Any]:
    found = REGISTRY.find(name)
    if not callable(found):
        raise ConfigError(
            f"the builder of a net is a function or an nn.Module class, but `{name}` is {found!r}."
        )
    return found  # type: ignore[no-any-return]


class GivenNet(Own):
    """Hands out a net that exists, in training mode, whatever mode it came in.

    Args:
        make: returns the net; called as often as a method builds one.
    """

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


def given_config(
    config_type: type[C], fields: Mapping[str, Any], **nets: GivenNet | Sequence[GivenNet]
) -> C:
    """Make a config of any method with existing nets in one of its fields, `net` or `members`.

    Configs travel as data and name their nets; one that holds nets can be pickled at most.
    """
    return parse(config_type, {**fields, **nets})


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
    if not isinstance(value, Mapping):
        raise ValueError(f"a net is a config, a dict with a `name`, or a name; but got {value!r}.")
    name = value.get("name")
    if name is None:
        raise ValueError(f"a net needs a `name`. Known: {', '.join(sorted(REGISTRY.names()))}.")
    if isinstance(name, str) and name in REGISTRY.known:
        config: type[NetConfig] = REGISTRY.find(name)
        return config.model_validate(dict(value))
    try:
        if not callable(name):
            REGISTRY.path_of(name)
    except UnknownNameError as error:  # pydantic turns only ValueErrors into its own report
        raise ValueError(
            f"{error} A net of your own is named by the import path of its builder, "
            "`package.module:build`."
        ) from None
    return Own.model_validate(dict(value))


Net: TypeAlias = Annotated[SerializeAsAny[NetConfig], BeforeValidator(_parsed)]
"""The type of a config field: takes a net's config, a dict with its name, or the name alone.

A builder of one's own, or its import path, is a name too; see `Own`.
"""


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
        >>> [net.name for net in own_nets([Own(name="torch.nn:Linear"), 3])]
        ['torch.nn:Linear']
    """
    return [net for net in nets_in(value) if isinstance(net, Own)]


def check_own_nets(
    config: BaseModel, in_shape: tuple[int, ...], num_classes: int, *, is_whole: bool = False
) -> None:
    """Build every net of one's own in a method's config once, so that a bad one is refused here.

    Inputs are whole numbers, such as tokens, if `is_whole`.

    Raises:
        ConfigError: A builder fails, or its net does not fit the data.
    """
    import torch

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
