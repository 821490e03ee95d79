"""Dropout rates and input masks that gradients can reach (Maddison et al. 2016).

A Bernoulli draw has no gradient in its probability; its concrete relaxation
sigmoid((logit + log u - log(1 - u)) / tau) does, and becomes the draw as tau falls to 0.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.hypers.constrained import UNIT, ConstrainedParameter
from tuneparts.hypers.hyper import Hyper, Number, Part, Shapes

Evaluation = Literal["probability", "rounded"]
COUNT = "num_kept"
"""What a mask reports besides the probabilities that it is counted from."""


def relaxed_bernoulli(
    logits: Tensor, shape: torch.Size, *, tau: float, generator: torch.Generator
) -> Tensor:
    """Draw numbers in [0, 1] that exceed one half with probability sigmoid(logits).

    Args:
        logits: broadcastable to `shape`.
        shape: of the draws, all independent.
        tau: temperature; smaller is closer to 0 and 1.
        generator: on the device of `logits`.
    """
    u = torch.rand(shape, generator=generator, device=logits.device, dtype=logits.dtype)
    return torch.sigmoid((logits + torch.logit(u)) / tau)


class DropoutConfig(Hyper):
    """The dropout rate of each dropout slot of the net."""

    acts_on = "activations"

    rate: Annotated[
        float | tuple[float, ...], Number(UNIT, identity=0.0, each="slot", metric="dropout")
    ] = 0.1
    """The same for all slots, or one each in the order of the net."""
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at fixed rates."""

    def build(self, num_slots: int, *, learnable: bool) -> "ConcreteDropout":
        """Build the dropout of a net with this many slots."""
        rates = _one_each(self.rate, num_slots, what="dropout.rate", each="dropout slot")
        return ConcreteDropout(rates, tau=self.tau, learnable=learnable)

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> "ConcreteDropout":  # noqa: ARG002
        return self.build(shapes.num_slots, learnable=learnable)


class ConcreteDropout(Part):
    """The dropout of all slots of a net: relaxed at learnable rates, ordinary at fixed ones.

    Args:
        rates: one per slot.
        tau: temperature of the relaxation.
        learnable: whether gradient steps move the logits of the rates.
    """

    def __init__(self, rates: Sequence[float], *, tau: float = 0.1, learnable: bool) -> None:
        super().__init__()
        if any(rate >= 1 for rate in rates):
            raise ConfigError(
                f"a dropout rate must be below 1, but got {max(rates):g}, which keeps nothing."
            )
        self.tau = tau
        self.rates = ConstrainedParameter(
            rates, link=UNIT, learnable=learnable, names=[f"dropout.{i}" for i in range(len(rates))]
        )
        self.is_identity = not learnable and not any(rates)

    def forward(self, h: Tensor, slot: int, generator: torch.Generator) -> Tensor:
        """Drop activations of any shape, element by element, and rescale by 1 / (1 - rate)."""
        logits = self.rates.raw
        if logits is None:
            rate = self.rates.given[slot]
            if rate == 0:
                return h
            u = torch.rand(h.shape, generator=generator, device=h.device, dtype=h.dtype)
            return h * (u >= rate) / (1 - rate)
        dropped = relaxed_bernoulli(logits[slot], h.shape, tau=self.tau, generator=generator)
        return h * ((1 - dropped) / torch.sigmoid(-logits[slot])).to(h.dtype)

    def draws(self, *, training: bool) -> bool:
        return training and not self.is_identity

    def values(self) -> dict[str, float]:
        """Rate of each slot by metric name without `hyper/`."""
        return {f"dropout.{i}": rate for i, rate in enumerate(self.rates.numbers())}


class MaskConfig(Hyper):
    """The probability of each input feature to be kept."""

    acts_on = "inputs"
    is_augmentation = False

    keep: Annotated[
        float | tuple[float, ...], Number(UNIT, identity=1.0, each="input", metric="keep")
    ] = 0.5
    """Keep probability of all features, or of each; 0 and 1 make a hard mask when fixed."""
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at fixed probabilities."""
    evaluation: Evaluation = "probability"
    """Multiply features by their keep probability, or by its rounding."""

    def build(self, in_shape: Sequence[int], *, learnable: bool) -> "InputMask":
        """Build the mask of inputs of this shape, features in row-major order."""
        keep = _one_each(self.keep, prod(in_shape), what="mask.keep", each="input feature")
        return InputMask(
            keep,
            in_shape=in_shape,
            tau=self.tau,
            evaluation=self.evaluation,
            learnable=learnable,
        )

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> "InputMask":  # noqa: ARG002
        return self.build(shapes.in_shape, learnable=learnable)

    def metrics(self, name: str) -> tuple[schema.Metric, ...]:
        return (*super().metrics(name), schema.lookup(f"hyper/{COUNT}"))

    @classmethod
    def owns(cls, metric: str, name: str) -> bool:
        return metric == COUNT or super().owns(metric, name)

    @classmethod
    def known(cls, name: str) -> list[str]:
        return [*super().known(name), COUNT]

    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        keep = {metric: value for metric, value in found.items() if metric != COUNT}
        if not keep and COUNT in found:
            raise ConfigError(
                f"`{COUNT}` is counted from `keep.*`, but came without them. Masks of images "
                "cannot be taken over by value; pass `keep.0`, `keep.1`, ... of a vector's mask."
            )
        counted = sum(value > 0.5 for value in keep.values())
        if found.get(COUNT, counted) != counted:
            raise ConfigError(
                f"`{COUNT}` must count the `keep.*` above one half, but is {found[COUNT]:g} where "
                f"they give {counted}. Pass values of one report only."
            )
        return super().at(keep, name=name)


class InputMask(Part):
    """Multiplies each input feature by a random keep variable, without rescaling.

    In training every example has a draw of its own, relaxed when learnable and 0 or 1 when
    fixed. Evaluation is deterministic.

    Args:
        keep: keep probabilities of all features in row-major order.
        in_shape: shape of one input.
        tau: temperature of the relaxation.
        evaluation: what stands for the draw in evaluation.
        learnable: whether gradient steps move the logits of the probabilities.
    """

    def __init__(
        self,
        keep: Sequence[float],
        *,
        in_shape: Sequence[int],
        tau: float = 0.1,
        evaluation: Evaluation = "probability",
        learnable: bool,
    ) -> None:
        super().__init__()
        self.in_shape = tuple(in_shape)
        self.tau = tau
        self.evaluation = evaluation
        self.keep = ConstrainedParameter(
            keep, link=UNIT, learnable=learnable, names=[f"keep.{i}" for i in range(len(keep))]
        )
        self.is_identity = not learnable and all(k == 1 for k in keep)
        self.is_random = learnable or any(0 < k < 1 for k in keep)

    def forward(self, x: Tensor, generator: torch.Generator, *, training: bool) -> Tensor:
        """Masked inputs (B, *in_shape)."""
        if training and self.is_random:
            logits = self.keep.raw
            if logits is None:
                probability = self.keep.tensor().view(self.in_shape).expand_as(x)
                return x * torch.bernoulli(probability, generator=generator)
            kept = relaxed_bernoulli(
                logits.view(self.in_shape), x.shape, tau=self.tau, generator=generator
            )
            return x * kept
        keep = self.keep.tensor().view(self.in_shape)
        return x * ((keep > 0.5) if self.evaluation == "rounded" else keep)

    def draws(self, *, training: bool) -> bool:
        return training and self.is_random

    def values(self) -> dict[str, float]:
        """Number of features kept, and for vectors each probability as `keep.0`, `keep.1`, ...

        The probabilities of an image's pixels are too many for a report: read `keep` instead.
        """
        keep = self.keep.numbers()
        each = {f"keep.{i}": k for i, k in enumerate(keep)} if len(self.in_shape) == 1 else {}
        return {COUNT: float(sum(k > 0.5 for k in keep))} | each


def _one_each(
    given: float | tuple[float, ...], count: int, *, what: str, each: str
) -> tuple[float, ...]:
    numbers = (given,) * count if isinstance(given, float) else given
    if len(numbers) != count:
        raise ConfigError(
            f"`{what}` needs one number for each {each}, but got {len(numbers)} for {count}. "
            f"Give {count}, or a single number for all."
        )
    return numbers
