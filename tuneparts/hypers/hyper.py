"""What a hyperparameter is: one class with its numbers, where it acts, and what it does there.

A hyperparameter is what a prediction or a training loss depends on besides the weights. Some
methods learn its numbers, others hold them, and any search can vary them. Nothing here imports
torch: what computes in a run is in `parts`.

Legend: B examples, K outputs of the net.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller, pos
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from tuneparts.core import schema
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tuneparts.hypers.parts import _NumberedPart, _Part

Place = Literal["inputs", "activations", "outputs", "loss", "weights"]
PLACES: tuple[Place, ...] = ("inputs", "activations", "outputs", "loss", "weights")
Each = Literal["input", "slot", "output", "tensor"]


@dataclass(frozen=True)
class _Link:
    """A smooth increasing map from the reals onto an open interval, with its inverse."""

    value: "Callable[[Tensor], Tensor]"
    raw: Callable[[float], float]
    low: float
    high: float


def _softplus(raw: "Tensor") -> "Tensor":
    from torch.nn import functional

    return functional.softplus(raw)


def _inverse_softplus(value: float) -> float:
    # log(exp(v) - 1), written so that it neither overflows nor cancels.
    return value + math.log(-math.expm1(-value))


def _logit(value: float) -> float:
    return math.log(value) - math.log1p(-value)


POSITIVE = _Link(_softplus, _inverse_softplus, 0.0, math.inf)
LOG = _Link(methodcaller("exp"), math.log, 0.0, math.inf)
UNIT = _Link(methodcaller("sigmoid"), _logit, 0.0, 1.0)
REAL = _Link(pos, float, -math.inf, math.inf)


@dataclass(frozen=True)
class Shapes:
    """What the hyperparameters of a run act on."""

    in_shape: tuple[int, ...] = ()
    """Shape of one input, (C, H, W) or (D,)."""
    num_slots: int = 0
    """Dropout layers of the net: the places where hyperparameters reach activations."""
    num_outputs: int | None = None
    """Outputs of the net (K); None where nobody asked."""
    num_tensors: int = 0
    """Parameter tensors of the net."""

    def count(self, each: Each) -> int:
        """How many numbers a hyperparameter has that has one for each of these."""
        if each == "output" and self.num_outputs is None:
            raise ConfigError("`num_outputs` is None: a number for each of them needs it.")
        return {
            "input": math.prod(self.in_shape),
            "slot": self.num_slots,
            "output": self.num_outputs or 0,
            "tensor": self.num_tensors,
        }[each]


@dataclass(frozen=True)
class Number:
    """Marks a field of a hyperparameter as a number that can be learnt."""

    link: _Link
    """The range of the number, and how gradient steps stay inside it."""
    meaning: str = ""
    """What it is, for tables and figures."""
    unit: str = ""
    identity: float | None = None
    """The value at which it does nothing, if there is one."""
    each: Each | None = None
    """One number for each of these; the field then is a number for all, or a tuple."""
    metric: str | None = None
    """Name in reports; None for the name in the config, with the field's where it has several."""
    held_in: str | None = None
    """Name of the vector that holds it in a run, with others of this name; None for the field's."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: Any) -> Any:
        low, high = self.link.low, self.link.high
        for one in value if isinstance(value, tuple) else (value,):
            if not (math.isfinite(one) and low <= one <= high):
                raise ValueError(f"must be finite and lie in [{low:g}, {high:g}], but got {one:g}")
        return value


class Hyper(Config):
    """A hyperparameter: its fields, and one method that says where it acts and what it does there.

    A subclass marks the fields that can be learnt by `Number` and overrides exactly one of
    `on_inputs`, `on_activations`, `on_outputs`, `on_loss` and `on_weights`. In a config it stands
    under a name of its own, by which it is reported, varied and frozen.

    Example:
        >>> from typing import Annotated
        >>> import torch
        >>> class Offset(Hyper):
        ...     shift: Annotated[float, Number(REAL, "added to all outputs", identity=0.0)] = 0.0
        ...
        ...     def on_outputs(self, outputs_BK, now):
        ...         return outputs_BK + now["shift"]
        >>> part = Offset(shift=2.0).part(Shapes(), name="offset", learnable=True)
        >>> part(torch.zeros(1, 2)).tolist()
        [[2.0, 2.0]]
        >>> part.values()
        {'offset': 2.0}
    """

    is_random: ClassVar[bool] = False
    """Whether it draws random numbers, from `now.generator`; on inputs and activations only."""
    in_likelihood: ClassVar[bool | None] = None
    """Whether log p(y | x, w, psi) depends on it. None: by where it acts, which is yes for inputs,
    activations and outputs, and no for the loss and for weights. A loss that is the likelihood
    itself says True."""
    needs_images: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    """Whether it makes sense for outputs only that are the logits of classes."""
    acts_on: ClassVar[Place | None] = None
    """None: by the method that is overridden. For a hyperparameter that makes its `part` itself."""
    is_augmentation: ClassVar[bool] = True
    """Whether, acting on inputs, it changes how an example looks."""

    @model_validator(mode="after")
    def _check_class(self) -> Self:
        place, name = self.place(), type(self).__name__
        if self.is_random and place not in ("inputs", "activations"):
            raise ConfigError(
                f"{name} is random and acts on {place}: a random one acts on inputs or "
                "activations, whose predictions are averaged over samples."
            )
        if self.in_likelihood is False and place not in ("loss", "weights"):
            raise ConfigError(
                f"{name}.in_likelihood = False: what acts on {place} enters the likelihood."
            )
        return self

    def on_inputs(self, x: "Tensor", now: "Call") -> "Tensor":
        """Inputs (B, ...) as the net sees them, in training and evaluation."""
        raise NotImplementedError

    def on_activations(self, h: "Tensor", slot: int, now: "Call") -> "Tensor":
        """Activations at a dropout layer of the net; if random, in training only."""
        raise NotImplementedError

    def on_outputs(self, outputs_BK: "Tensor", now: "Call") -> "Tensor":
        """Outputs as they are scored and served: unnormalised log-probabilities of classes."""
        raise NotImplementedError

    def on_loss(
        self, losses_B: "Tensor", outputs_BK: "Tensor", targets_B: "Tensor", now: "Call"
    ) -> "Tensor":
        """The loss of each example, from the loss of the task."""
        raise NotImplementedError

    def on_weights(self, weights: "Sequence[Tensor]", now: "Call") -> "Tensor":
        """A penalty, added to the training loss; methods differ in whether they have one."""
        raise NotImplementedError

    @classmethod
    def place(cls) -> Place:
        if cls.acts_on is not None:
            return cls.acts_on
        said = [p for p in PLACES if getattr(cls, f"on_{p}") is not getattr(Hyper, f"on_{p}")]
        if len(said) != 1:
            raise ConfigError(
                f"{cls.__name__} overrides {' and '.join(f'`on_{one}`' for one in said) or 'none'}:"
                f" a subclass overrides one of {', '.join(f'`on_{one}`' for one in PLACES)}."
            )
        return said[0]

    @classmethod
    def enters_likelihood(cls) -> bool:
        """Whether a gradient at fixed weights can reach it."""
        by_place = cls.place() not in ("loss", "weights")
        return by_place if cls.in_likelihood is None else cls.in_likelihood

    @classmethod
    def numbers(cls) -> dict[str, Number]:
        """The fields that can be learnt."""
        fields = cls.model_fields.items()
        marks = [(name, one) for name, field in fields for one in field.metadata]
        return {name: one for name, one in marks if isinstance(one, Number)}

    @classmethod
    def stems(cls, name: str) -> dict[str, str]:
        """Field -> its name in reports; a number for each of several goes on with `.0`, `.1`."""
        numbers = cls.numbers()
        return {
            field: number.metric or (name if len(numbers) == 1 else f"{name}_{field}")
            for field, number in numbers.items()
        }

    def metrics(self, name: str) -> tuple[schema.Metric, ...]:
        found = []
        for field, stem in self.stems(name).items():
            number = self.numbers()[field]
            full = f"hyper/{stem}.*" if number.each else f"hyper/{stem}"
            meaning = number.meaning or f"`{field}` of {type(self).__name__}"
            metric = schema.Metric(full, schema.Direction.NONE, number.unit, 3, meaning)
            is_ours = full in schema.BUILT_IN and number.metric is not None
            found.append(schema.lookup(full) if is_ours else metric)
        return tuple(found)

    @classmethod
    def known(cls, name: str) -> list[str]:
        """Names of reported values, without `hyper/`; `prior.*` for `prior.0`, `prior.1`, ..."""
        numbers = cls.numbers()
        return [stem + ".*" * bool(numbers[f].each) for f, stem in cls.stems(name).items()]

    @classmethod
    def owns(cls, metric: str, name: str) -> bool:
        """Whether a reported name, without `hyper/`, is of this hyperparameter."""
        known = cls.known(name)
        return metric in known or re.sub(r"\.\d+$", ".*", metric) in known

    @classmethod
    def identity(cls) -> Self:
        """The hyperparameter at no effect."""
        return parse(cls, {field: number.identity for field, number in cls.numbers().items()})

    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        """The same at other values, which have their reported names without `hyper/`."""
        for metric in found:
            if not self.owns(metric, name):
                known = self.known(name)
                raise UnknownNameError(f"hyperparameter of {type(self).__name__}", metric, known)
        changes: dict[str, Any] = {}
        for field, stem in self.stems(name).items():
            listed = [f"{stem}.{i}" for i in range(sum(m.startswith(f"{stem}.") for m in found))]
            for missing in sorted(set(listed) - found.keys()):
                raise ConfigError(f"`{missing}` is missing: pass all values of the run.")
            if stem in found or listed:
                changes[field] = tuple(found[one] for one in listed) if listed else found[stem]
        try:
            return self.replaced(changes)
        except ConfigError as error:
            raise ConfigError(f"values of `{name}`: {error}") from None

    def counted(self, field: str, shapes: Shapes) -> tuple[float, ...]:
        """The numbers of a field, one for each."""
        value, each = getattr(self, field), self.numbers()[field].each
        count = 1 if each is None else shapes.count(each)
        if not isinstance(value, tuple):
            return (float(value),) * count
        if len(value) != count:
            raise ConfigError(
                f"`{field}` of {type(self).__name__} needs one number for each {each}, but got "
                f"{len(value)} for {count}."
            )
        return tuple(float(one) for one in value)

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> "_Part":
        """The module that holds the numbers in a run and acts with them."""
        from tuneparts.hypers.parts import _NumberedPart

        return _NumberedPart(self, shapes, name=name, learnable=learnable)


@dataclass(frozen=True)
class Call:
    """What a hyperparameter acts with in one call: `now["rate"]`, and the source of its draws."""

    _part: "_NumberedPart"
    _generator: "torch.Generator | None"
    training: bool
    """Whether a step is made, and not a score."""

    def __getitem__(self, field: str) -> "Tensor":
        """A number () as a tensor, or (K,) where there is one for each; carries gradients."""
        return self._part.tensor(field)

    def raw(self, field: str) -> "Tensor | None":
        """What gradient steps move, the logits of `UNIT` numbers (K,); None if they are held."""
        return self._part.parameter(field).raw

    def learns(self, field: str) -> bool:
        """Whether the run learns this number, so that draws must let its gradient through."""
        return self.raw(field) is not None

    @property
    def draws(self) -> bool:
        return self._part.draws(training=self.training)

    def relaxed(self, logits: "Tensor", shape: Sequence[int], *, tau: float) -> "Tensor":
        """Draw in [0, 1], above 1/2 with probability sigmoid(logits) (Maddison et al. 2016)."""
        u = logits.new_empty(shape).uniform_(generator=self.generator)
        return ((logits + u.logit()) / tau).sigmoid()

    @property
    def generator(self) -> "torch.Generator":
        """The source of all draws; refused where the class does not say `is_random`."""
        if not self._part.hyper.is_random or self._generator is None:
            raise ConfigError(
                f"{type(self._part.hyper).__name__} asks for a generator: a class that draws says "
                "`is_random = True`, and acts on inputs or activations."
            )
        return self._generator
