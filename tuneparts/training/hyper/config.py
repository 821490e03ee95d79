"""Which hypers a run has, where they start or stay, and how predictions are averaged."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator
from torch import nn

from tuneparts.augment.affine import BentonConfig, LilaConfig, SchwoebelConfig
from tuneparts.augment.averaging import Averaging
from tuneparts.augment.concrete import ConcreteDropout, DropoutConfig, MaskConfig
from tuneparts.augment.pixels import ColourConfig, InputNoise
from tuneparts.augment.temperature import Temperature
from tuneparts.config import Config, parse
from tuneparts.errors import ConfigError
from tuneparts.models import surgery
from tuneparts.training.hyper.found import placed
from tuneparts.training.hyper.hypers import Hypers
from tuneparts.training.hyper.not_learnable import refuse_outside_likelihood

PartName = Literal["affine", "colour", "noise", "mask", "temperature", "dropout"]


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


class HypersConfig(Config):
    """The parts of a prediction besides the net. A part that is None is not there.

    A method that learns hypers starts them at these values; any other holds them there.
    """

    affine: AffineKind | None = None
    """Affine motions of images: `kind` is `lila`, `benton` or `schwoebel`."""
    colour: ColourConfig | None = None
    noise: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Standard deviation of Gaussian noise on normalised inputs."""
    mask: MaskConfig | None = None
    temperature: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Softmax temperature."""
    dropout: DropoutConfig | None = None
    """Rates of the net's dropout slots; None leaves the net's own rates, never learnt."""
    samples: int = Field(1, ge=1)
    """Predictions averaged for each example in training; 1 when nothing is random."""
    eval_samples: int | None = Field(None, ge=1)
    """The same in evaluation; None for as many as in training."""
    averaging: Averaging = "logits"
    """Average logits or probabilities, in training and evaluation alike."""
    frozen: tuple[PartName, ...] = ()
    """Parts held fixed even by methods that learn hypers."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_outside_likelihood(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            refuse_outside_likelihood(str(key) for key in values)
        return values

    @field_validator("frozen")
    @classmethod
    def _sort_frozen(cls, names: tuple[PartName, ...]) -> tuple[PartName, ...]:
        return tuple(sorted(set(names)))

    @model_validator(mode="after")
    def _check_frozen_parts_exist(self) -> "HypersConfig":
        for name in self.frozen:
            if getattr(self, name) is None:
                raise ConfigError(
                    f"only a part that is there can be frozen, but `{name}` is None. "
                    f"Give `{name}` its values, or leave it out of `frozen`."
                )
        return self

    def at(self, found: Mapping[str, float]) -> "HypersConfig":
        """The same config at values found elsewhere.

        Args:
            found: values by metric name without `hyper/`. Parts that are not there yet are
                made, with every value that was not found at no effect.
        """
        return parse(HypersConfig, placed(self.model_dump(), found))

    def build(self, *, learnable: bool, net: nn.Module, in_shape: tuple[int, ...]) -> Hypers:
        """The hypers at these values, with the net's dropout layers attached in place.

        Args:
            learnable: whether the parts that are not frozen become parameters.
            net: the net they will predict with.
            in_shape: shape of one input, (C, H, W) or (D,).
        """
        for name in ("affine", "colour"):
            if getattr(self, name) is not None and len(in_shape) != 3:
                raise ConfigError(
                    f"`{name}` acts on images (C, H, W), but inputs have shape {in_shape}. "
                    f"Remove `{name}`; vectors can have mask, noise, dropout and temperature."
                )
        learns = {name: learnable and name not in self.frozen for name in get_args(PartName)}
        mask, colour, affine = self.mask, self.colour, self.affine
        noise, temperature = self.noise, self.temperature
        hypers = Hypers(
            mask=None if mask is None else mask.build(in_shape, learnable=learns["mask"]),
            colour=None if colour is None else colour.build(learnable=learns["colour"]),
            affine=None if affine is None else affine.build(learnable=learns["affine"]),
            noise=None if noise is None else InputNoise(noise, learnable=learns["noise"]),
            dropout=self._dropout(net, learnable=learns["dropout"]),
            temperature=None
            if temperature is None
            else Temperature(temperature, learnable=learns["temperature"]),
            samples=self.samples,
            eval_samples=self.eval_samples or self.samples,
            averaging=self.averaging,
        )
        hypers.attach(net)
        return hypers

    def _dropout(self, net: nn.Module, *, learnable: bool) -> ConcreteDropout | None:
        layers = surgery.find(net, nn.Dropout).values()
        if self.dropout is not None:
            return self.dropout.build(len(layers), learnable=learnable)
        # A dropout layer of the net would draw from the global generator; driven by the
        # hypers at its own rate it draws from the stream of the call.
        own = [layer.p for layer in layers]
        return ConcreteDropout(own, learnable=False) if any(own) else None
