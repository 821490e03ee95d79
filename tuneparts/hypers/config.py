"""Which hypers a run has, where they start or stay, and how predictions are averaged."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from torch import nn

from tuneparts.core import schema
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers.affine import BentonConfig, LilaConfig, SchwoebelConfig
from tuneparts.hypers.averaging import Averaging
from tuneparts.hypers.concrete import ConcreteDropout, DropoutConfig, MaskConfig
from tuneparts.hypers.found import placed
from tuneparts.hypers.hyper import Hyper, Part, Place, Shapes
from tuneparts.hypers.hypers import Hypers
from tuneparts.hypers.kinds import KINDS
from tuneparts.hypers.not_learnable import refuse_learning, refuse_outside_likelihood
from tuneparts.hypers.pixels import ColourConfig, InputNoise
from tuneparts.hypers.temperature import Temperature
from tuneparts.hypers.weight_prior import WeightPrior
from tuneparts.models import surgery

BUILT_IN: dict[str, tuple[type[Hyper], ...]] = {
    "mask": (MaskConfig,),
    "colour": (ColourConfig,),
    "affine": (LilaConfig, BentonConfig, SchwoebelConfig),
    "noise": (InputNoise,),
    "dropout": (DropoutConfig,),
    "temperature": (Temperature,),
}
"""The hypers that are fields of `HypersConfig` -> the classes that each can be of."""
FOUND_ONLY: dict[str, tuple[type[Hyper], ...]] = {"weight_prior": (WeightPrior,)}
"""Hypers that a method can find without having them in its config, likewise."""


def _kind(given: Any) -> Any:
    """The parametrisation of an affine config; one that is not named is `lila`."""
    if isinstance(given, Mapping):
        return given.get("kind", "lila")
    return getattr(given, "kind", None)


AffineKind = Annotated[
    Annotated[LilaConfig, Tag("lila")]
    | Annotated[BentonConfig, Tag("benton")]
    | Annotated[SchwoebelConfig, Tag("schwoebel")],
    Discriminator(
        _kind,
        custom_error_type="affine_kind",
        custom_error_message="`kind` must be `lila`, `benton` or `schwoebel`",
    ),
]


def _under(field: str) -> Callable[[Any], Any]:
    """Read a bare value as the one field of a hyper."""
    return lambda value: (
        value if value is None or isinstance(value, Hyper | Mapping) else {field: value}
    )


Noise = Annotated[
    InputNoise | None,
    BeforeValidator(_under("std")),
    PlainSerializer(lambda hyper: None if hyper is None else hyper.std),
]
Tempering = Annotated[
    Temperature | None,
    BeforeValidator(_under("value")),
    PlainSerializer(lambda hyper: None if hyper is None else hyper.value),
]


def check_images(name: str, hyper: Hyper, in_shape: tuple[int, ...]) -> None:
    """Refuse a hyper that acts on images where inputs are none.

    Args:
        name: of the hyper in its config.
        hyper: what it is.
        in_shape: shape of one input.
    """
    if hyper.needs_images and len(in_shape) != 3:
        raise ConfigError(
            f"`{name}` acts on images (C, H, W), but inputs have shape {in_shape}. "
            f"Remove `{name}`; vectors can have mask, noise, dropout and temperature."
        )


class HypersConfig(Config):
    """What a prediction depends on besides the net. A hyper that is None is not there.

    A method that learns hypers starts them at these values; any other holds them there. A hyper of
    one's own stands beside those here, under a name of its choice.

    Example:
        >>> from tuneparts.hypers.pixels import InputNoise
        >>> config = HypersConfig(temperature=2.0, second_noise=InputNoise(std=0.1))
        >>> sorted(config.parts)
        ['second_noise', 'temperature']
        >>> config.replaced({"second_noise.std": 0.3}).parts["second_noise"].std
        0.3
    """

    model_config = ConfigDict(extra="allow")

    affine: AffineKind | None = None
    """Affine motions of images: `kind` is `lila`, `benton` or `schwoebel`."""
    colour: ColourConfig | None = None
    noise: Noise = None
    """Standard deviation of Gaussian noise on normalised inputs."""
    mask: MaskConfig | None = None
    temperature: Tempering = None
    """Softmax temperature."""
    dropout: DropoutConfig | None = None
    """Rates of the net's dropout slots; None leaves the net's own rates, never learnt."""
    samples: int = Field(1, ge=1)
    """Predictions averaged for each example in training; 1 when nothing is random."""
    eval_samples: int | None = Field(None, ge=1)
    """The same in evaluation; None for as many as in training."""
    averaging: Averaging = "logits"
    """Average logits or probabilities, in training and evaluation alike."""
    frozen: tuple[str, ...] = ()
    """Names of hypers that are held fixed even by methods that learn hypers."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        """Read the hypers of one's own, and refuse whatever else is no field."""
        if not isinstance(values, Mapping):
            return values
        found = {}
        for key, value in values.items():
            if key in cls.model_fields or isinstance(value, Hyper):
                found[key] = value
            elif isinstance(value, Mapping) and "kind" in value:
                fields = {field: one for field, one in value.items() if field != "kind"}
                made = KINDS.find(value["kind"], Hyper)
                # A field of its own may be called `kind` as well.
                found[key] = parse(made, value if "kind" in made.model_fields else fields)
            elif isinstance(value, type) and issubclass(value, Hyper):
                raise ConfigError(
                    f"a hyper is given with its values, but `{key}` is the class "
                    f"{value.__name__}. Write `{key}={value.__name__}(...)`."
                )
            elif value is not None:
                refuse_outside_likelihood([str(key)])
                try:
                    super()._refuse_unknown_keys({key: value})  # type: ignore[operator]
                except ValueError as error:
                    raise ValueError(
                        f"{error} A hyper of your own is an object of its class, and in JSON its "
                        "fields with a `kind`."
                    ) from None
        return found

    @model_serializer(mode="wrap")
    def _name_kinds(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the class of each hyper of one's own beside its fields."""
        tree: dict[str, Any] = handler(self)
        for name, hyper in self.own.items():
            if name in tree:
                tree[name] = {"kind": KINDS.name_of(type(hyper)), **tree[name]}
        return tree

    @field_validator("frozen")
    @classmethod
    def _sort_frozen(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(names)))

    @model_validator(mode="after")
    def _check_frozen_parts_exist(self) -> "HypersConfig":
        for name in self.frozen:
            if name in BUILT_IN and name not in self.parts:
                raise ConfigError(
                    f"only a part that is there can be frozen, but `{name}` is None. "
                    f"Give `{name}` its values, or leave it out of `frozen`."
                )
            if name not in self.parts:
                raise ConfigError(
                    f"`frozen` names hypers that are there, but got `{name}`. "
                    f"Here are: {', '.join(self.parts) or 'none'}."
                )
        return self

    @model_validator(mode="after")
    def _check_names(self) -> "HypersConfig":
        for name, hyper in self.own.items():
            is_taken = hasattr(HypersConfig, name) or hasattr(nn.ModuleDict, name)
            if is_taken or not re.fullmatch("[a-z][a-z0-9_]*", name):
                raise ConfigError(
                    "a hyper's name is a lower-case word that nothing else here has, but got "
                    f"`{name}` for {type(hyper).__name__}. Choose another name."
                )
            KINDS.name_of(type(hyper))  # refuses a class that no worker could import
        counts = Counter(self.metrics())
        for metric, count in counts.items():
            is_built_in = metric.name in schema.BUILT_IN
            if count > 1 or (is_built_in and schema.lookup(metric.name) != metric):
                raise ConfigError(
                    f"every value that is reported has a name of its own, but `{metric.name}` is "
                    "taken. Rename the hyper, or its field."
                )
        return self

    @property
    def own(self) -> dict[str, Hyper]:
        """Hypers besides those that are fields here, by name."""
        return dict(self.model_extra or {})

    @property
    def parts(self) -> dict[str, Hyper]:
        """All hypers that are there, by name, in the order in which those of one place act."""
        given = {name: getattr(self, name) for name in BUILT_IN}
        return {**{name: hyper for name, hyper in given.items() if hyper is not None}, **self.own}

    def acting_on(self, place: Place) -> list[str]:
        """Names of the hypers that act on inputs, activations, outputs, the loss or weights."""
        return [name for name, hyper in self.parts.items() if hyper.place() == place]

    def metrics(self) -> tuple[schema.Metric, ...]:
        """What a run reports of these hypers."""
        return tuple(m for name, hyper in self.parts.items() for m in hyper.metrics(name))

    def at(self, found: Mapping[str, float]) -> "HypersConfig":
        """The same config at values found elsewhere.

        Args:
            found: values by metric name without `hyper/`. Fields here that are None are made, with
                every value that was not found at no effect.
        """
        found_only = {name: cls for name, cls in FOUND_ONLY.items() if name not in self.own}
        return self._with(placed(self.parts, found, {**BUILT_IN, **found_only}))

    def joined(self, other: "HypersConfig") -> "HypersConfig":
        """The same config with the hypers of one's own that only another has."""
        return self._with({n: hyper for n, hyper in other.own.items() if n not in self.own})

    def augmentation(self) -> "HypersConfig":
        """The hypers that change how an example looks, and nothing else."""
        gone = {
            name: None
            for name, hyper in self.parts.items()
            if hyper.place() != "inputs" or not hyper.is_augmentation
        }
        return self._with({**gone, "frozen": ()})

    def is_augmentation(self, metric: str) -> bool:
        """Whether a reported value, by its name without `hyper/`, changes how an example looks."""
        known = [(n, type(hyper)) for n, hyper in self.own.items()]
        known += [(n, cls) for n, classes in BUILT_IN.items() for cls in classes]
        return any(
            cls.place() == "inputs" and cls.is_augmentation and cls.owns(metric, name)
            for name, cls in known
        )

    def _with(self, changes: Mapping[str, Any]) -> "HypersConfig":
        return parse(HypersConfig, {**self.model_dump(), **changes})

    def build(
        self,
        *,
        learnable: bool,
        net: nn.Module,
        in_shape: tuple[int, ...],
        num_outputs: int | None = None,
        through_step: bool = False,
    ) -> Hypers:
        """The hypers at these values, with the net's dropout layers attached in place.

        Args:
            learnable: whether the hypers that are not frozen become parameters.
            net: the net they will predict with.
            in_shape: shape of one input, (C, H, W) or (D,).
            num_outputs: outputs of the net, for hypers with a number for each.
            through_step: whether hypers are learnt by a gradient through weight steps, which
                reaches also those outside the likelihood.
        """
        if learnable:
            refuse_learning(self, through_step=through_step)
        layers = surgery.find(net, nn.Dropout).values()
        num_tensors = len(list(net.parameters()))
        shapes = Shapes(tuple(in_shape), len(layers), num_outputs, num_tensors)
        parts: dict[str, tuple[Place, Part]] = {}
        for name, hyper in self.parts.items():
            check_images(name, hyper, in_shape)
            learns = learnable and name not in self.frozen
            parts[name] = hyper.place(), hyper.part(shapes, name=name, learnable=learns)
        # A dropout layer of the net would draw from the global generator; driven by the
        # hypers at its own rate it draws from the stream of the call.
        rates = [layer.p for layer in layers]
        if self.dropout is None and any(rates):
            parts["dropout"] = "activations", ConcreteDropout(rates, learnable=False)
        hypers = Hypers(
            parts,
            held_out_of=[n for n, hyper in self.parts.items() if not hyper.enters_likelihood()],
            num_slots=len(layers),
            samples=self.samples,
            eval_samples=self.eval_samples or self.samples,
            averaging=self.averaging,
        )
        hypers.attach(net)
        return hypers
