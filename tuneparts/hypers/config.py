"""Which hyperparameters a run has, where they start or stay, and how predictions are averaged.

Hyperparameters are learnt by the partial gradient of log p(y | x, w, psi) at fixed weights w
(Mlodozeniec et al. 2023, equation 4). What only shapes how w is reached has a gradient of exactly
zero there, and calling it learnt would be a mistake: it is refused here, with the reason.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from tuneparts.core import schema
from tuneparts.core.config import Config, parse, usually
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.hypers.hyper import Hyper, Place
from tuneparts.hypers.kinds import (
    BUILT_IN,
    KINDS,
    Affine,
    BentonAffine,
    Colour,
    Dropout,
    Mask,
    Noise,
    SchwoebelAffine,
    Temperature,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from tuneparts.hypers.hypers import HyperModule


Averaging = Literal["logits", "prob"]
HyperGradient = Literal["none", "fixed weights", "through a step"]
"""What moves the hyperparameters of a method: nothing, the partial gradient of a loss at fixed
weights, or the gradient of held-out data also through the last step of the weights."""
_LOSS = "it changes the training loss only"
OUTSIDE_LIKELIHOOD = {
    **dict.fromkeys(
        ("weight_decay", "learning_rate", "lr", "momentum", "optimiser", "schedule"),
        "it shapes the updates of the weights",
    ),
    **dict.fromkeys(("batch_size", "steps"), "it chooses the data of an update"),
    **dict.fromkeys(
        ("width", "depth", "num_chunks"), "it is a discrete choice made before training"
    ),
    "label_smoothing": _LOSS,
}
"""Names of hyperparameters that do not enter the likelihood, and why."""


AffineKind = Annotated[
    Affine | BentonAffine | SchwoebelAffine, Field(discriminator="kind"), usually("lila")
]


def _under(field: str) -> Callable[[Any], Any]:
    """Read a bare value as the one field of a hyperparameter."""
    return lambda value: (
        value if value is None or isinstance(value, Hyper | Mapping) else {field: value}
    )


_Noise = Annotated[
    Noise | None,
    BeforeValidator(_under("std")),
    PlainSerializer(lambda hyper: None if hyper is None else hyper.std),
]
_Tempering = Annotated[
    Temperature | None,
    BeforeValidator(_under("value")),
    PlainSerializer(lambda hyper: None if hyper is None else hyper.value),
]


def check_images(name: str, hyper: Hyper, in_shape: tuple[int, ...]) -> None:
    """Refuse a hyperparameter that acts on images where inputs are vectors."""
    if hyper.needs_images and len(in_shape) != 3:
        raise ConfigError(f"`{name}` acts on images (C, H, W), but inputs have shape {in_shape}.")


class Hypers(Config):
    """What a prediction depends on besides the net. A hyperparameter that is None is not there.

    A method that learns hyperparameters starts them at these values; any other holds them there. A
    hyperparameter of your own is next to those here, under a name of your choice.

    Example:
        >>> config = Hypers(temperature=2.0, second_noise=Noise(std=0.1))
        >>> sorted(config.parts)
        ['second_noise', 'temperature']
        >>> config.replaced({"second_noise.std": 0.3}).parts["second_noise"].std
        0.3
    """

    model_config = ConfigDict(extra="allow")
    affine: AffineKind | None = None
    """Affine motions of images: `kind` is `lila`, `benton` or `schwoebel`."""
    colour: Colour | None = None
    noise: _Noise = None
    """Standard deviation of Gaussian noise on normalised inputs."""
    mask: Mask | None = None
    temperature: _Tempering = None
    """Softmax temperature."""
    dropout: Dropout | None = None
    """Rates of the net's dropout slots; None leaves the net's own rates, never learnt."""
    samples: int = Field(1, ge=1)
    """Predictions averaged for each example in training; 1 when nothing is random."""
    eval_samples: int | None = Field(None, ge=1)
    """The same in evaluation; None for as many as in training."""
    averaging: Averaging = "logits"
    """Average logits or probabilities, in training and evaluation alike."""
    frozen: tuple[str, ...] = ()
    """Names of hyperparameters that are held fixed even by methods that learn hyperparameters."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        """Read your own hyperparameters, and refuse whatever else is no field."""
        if isinstance(values, Hyper | list | tuple):
            values = _by_name([values] if isinstance(values, Hyper) else values)
        if not isinstance(values, Mapping):
            return values
        found = {}
        for key, value in values.items():
            if key in cls.model_fields or isinstance(value, Hyper):
                found[key] = value
            elif isinstance(value, Mapping) and "kind" in value:
                made = KINDS.find(value["kind"], Hyper)
                # A field of its own may be called `kind` as well.
                gone = {"kind"} - made.model_fields.keys()
                found[key] = parse(made, {f: one for f, one in value.items() if f not in gone})
            elif isinstance(value, type) and issubclass(value, Hyper):
                raise ConfigError(
                    f"`{key}` is the class {value.__name__}: write `{key}={value.__name__}(...)`."
                )
            elif value is not None:
                _refuse_outside_likelihood(str(key))
                try:
                    super()._refuse_unknown_keys({key: value})  # type: ignore[operator]
                except ValueError as error:
                    hint = "Your own is an object, and in JSON its fields with a `kind`."
                    raise ValueError(f"{error} {hint}") from None
        return found

    @model_serializer(mode="wrap")
    def _name_kinds(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the class of each hyperparameter of your own next to its fields."""
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
    def _check_names(self) -> "Hypers":
        for name in self.frozen:
            if name not in self.parts:
                here = ", ".join(self.parts) or "none"
                raise ConfigError(f"`frozen` names `{name}`, which is not among: {here}.")
        for name, hyper in self.own.items():
            if hasattr(Hypers, name) or not re.fullmatch("[a-z][a-z0-9_]*", name):
                raise ConfigError(
                    f"got `{name}` for {type(hyper).__name__}: the name is a lower-case word "
                    "that nothing else here has."
                )
            KINDS.name_of(type(hyper))  # refuses a class that no worker could import
        for metric, count in Counter(self.metrics()).items():
            is_built_in = metric.name in schema.BUILT_IN
            if count > 1 or (is_built_in and schema.lookup(metric.name) != metric):
                raise ConfigError(f"`{metric.name}` is taken: rename what has it, or its field.")
        return self

    @property
    def own(self) -> dict[str, Hyper]:
        """Hyperparameters besides those that are fields here, by name."""
        return dict(self.model_extra or {})

    @property
    def parts(self) -> dict[str, Hyper]:
        """All hyperparameters that are there, by name, in the order in which they act."""
        given = {name: getattr(self, name) for name in FIELDS}
        return {**{name: hyper for name, hyper in given.items() if hyper is not None}, **self.own}

    def acting_on(self, place: Place) -> list[str]:
        """Names of those that act on inputs, activations, outputs, the loss or weights."""
        return [name for name, hyper in self.parts.items() if hyper.place() == place]

    def metrics(self) -> tuple[schema.Metric, ...]:
        return tuple(m for name, hyper in self.parts.items() for m in hyper.metrics(name))

    def at(self, found: Mapping[str, float]) -> "Hypers":
        """The config at values by metric name without `hyper/`; each must find a place."""
        # `laplace` learns a prior of the weights without having it in its config.
        made = (*FIELDS, "weight_prior")
        classes: dict[str, tuple[type[Hyper], ...]] = {
            **{name: (type(hyper),) for name, hyper in self.parts.items()},
            **{name: BUILT_IN[name] for name in made if name not in self.own},
        }
        changed, rest = {}, dict(found)
        for name, kinds in classes.items():
            values = {m: rest.pop(m) for m in found if any(cls.owns(m, name) for cls in kinds)}
            if values:
                # The first class that owns all the values; else the one that misses fewest.
                best = min(kinds, key=lambda cls: sum(not cls.owns(m, name) for m in values))
                changed[name] = (self.parts.get(name) or best.identity()).at(values, name=name)
        for metric in rest:
            _refuse_outside_likelihood(metric)
            known = {one for n, kinds in classes.items() for cls in kinds for one in cls.known(n)}
            raise UnknownNameError("hyperparameter", metric, known)
        return self._with(changed)

    def joined(self, other: "Hypers") -> "Hypers":
        """The same config with your own hyperparameters that only another has."""
        return self._with({n: hyper for n, hyper in other.own.items() if n not in self.own})

    def augmentation(self) -> "Hypers":
        """The hyperparameters that change how an example looks, and nothing else."""
        inputs = self.acting_on("inputs")
        gone = [n for n, one in self.parts.items() if n not in inputs or not one.is_augmentation]
        return self._with({**dict.fromkeys(gone), "frozen": ()})

    def is_augmentation(self, metric: str) -> bool:
        """Whether a reported value, by its name without `hyper/`, changes how an example looks."""
        known = [(n, type(hyper)) for n, hyper in self.own.items()]
        known += [(n, cls) for n in FIELDS for cls in BUILT_IN[n]]
        return any(
            cls.place() == "inputs" and cls.is_augmentation and cls.owns(metric, name)
            for name, cls in known
        )

    def _with(self, changes: Mapping[str, Any]) -> "Hypers":
        return parse(Hypers, {**self.model_dump(), **changes})

    def check_likelihood(self) -> None:
        """Refuse what is not frozen and has no gradient at fixed weights."""
        for name, hyper in self.parts.items():
            if name not in self.frozen and not hyper.enters_likelihood():
                why = "it penalises the weights" if hyper.place() == "weights" else _LOSS
                raise ConfigError(
                    f"`{name}` cannot be learnt here: {why} and does not enter log p(y | x, w, "
                    "psi), so that its partial gradient at fixed weights is exactly zero. Hold it "
                    f"by `frozen=('{name}',)`, or use `validation` with `through_step`."
                )

    def build(
        self,
        *,
        learnable: bool,
        net: "nn.Module",
        in_shape: tuple[int, ...],
        num_outputs: int | None = None,
    ) -> "HyperModule":
        """The hyperparameters as modules, learnable or not; dropout layers become slots."""
        from tuneparts.hypers.hypers import HyperModule

        return HyperModule(
            self, learnable=learnable, net=net, in_shape=in_shape, num_outputs=num_outputs
        )


FIELDS = tuple(name for name in BUILT_IN if name in Hypers.model_fields)
"""Names of the hyperparameters that are fields of `Hypers`, in the order in which they act."""


def _by_name(given: Sequence[Any]) -> dict[str, Any]:
    """Those that are given alone, under their usual names; random ones are averaged over draws."""
    found: dict[str, Any] = {}
    for hyper in given:
        if not isinstance(hyper, Hyper):
            raise ConfigError(f"{hyper!r:.100}: no hyperparameter. Write it as `Affine(...)`.")
        ours = (name for name in FIELDS if isinstance(hyper, BUILT_IN[name]))
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", type(hyper).__name__).lower()
        name = next(ours, snake)
        if name in found:
            raise ConfigError(f"`{name}` is there twice: use `Hypers(a=..., b=...)`.")
        found[name] = hyper
    is_random = any(one.is_random or one.place() == "inputs" for one in given)
    return found | ({"samples": 4, "eval_samples": 4} if is_random else {})


def _refuse_outside_likelihood(name: str) -> None:
    if name in OUTSIDE_LIKELIHOOD:
        raise ConfigError(
            f"`{name}` cannot be learnt here: {OUTSIDE_LIKELIHOOD[name]} and does not enter "
            "log p(y | x, w, psi), so that its partial gradient at fixed weights is exactly zero. "
            "Set it in the config of the method, or search over it."
        )


class Augmentation(Config):
    """The usual augmentation of CIFAR and ImageNet training, each step off unless asked for.

    Calling it applies the crops, flip and cutout in this order. Nothing of it is learnt.
    """

    crop_padding: int = Field(0, ge=0)
    """Zeros around the image before a random crop of the old size."""
    flip: bool = False
    """Mirror left and right with probability one half."""
    cutout: int = Field(0, ge=0)
    """Side of the square that is blanked out, in affine."""
    resized_crop: float = Field(0, ge=0, lt=1)
    """Least share of the area that a random crop keeps, which is then scaled to the old size; 0 for
    no such crop. That of Inception is 0.08 (Szegedy et al. 2015)."""

    def __call__(self, x_BCHW: "Tensor", generator: "torch.Generator") -> "Tensor":
        """Augment images; without any step switched on, they are returned as they are."""
        from tuneparts.hypers import affine

        if self.resized_crop:
            x_BCHW = affine._random_resized_crop(x_BCHW, self.resized_crop, generator)
        if self.crop_padding:
            x_BCHW = affine._random_crop(x_BCHW, self.crop_padding, generator)
        if self.flip:
            x_BCHW = affine._random_flip(x_BCHW, generator)
        if self.cutout:
            x_BCHW = affine._cutout(x_BCHW, self.cutout, generator)
        return x_BCHW
