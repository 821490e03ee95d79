"""Dropout rates and input masks that gradients can reach (Maddison et al. 2016), and dropout slots.

A Bernoulli draw has no gradient in its probability; its concrete relaxation
sigmoid((logit + log u - log(1 - u)) / tau) does, and becomes the draw as tau falls to 0.

Slots are the places inside a net where hypers act on activations. A net's forward has no argument
for rates or generators, and its parameters must stay its own. So a slot holds only its number, and
the caller says, for the length of one call, which dropout to apply. Copies of a net,
`functional_call` and several nets under one set of hypers then need no bookkeeping.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.hypers.hyper import UNIT
from tuneparts.hypers.kinds import COUNT, Evaluation
from tuneparts.hypers.parts import ConstrainedParameter, Part

Act = Callable[[Tensor, int, torch.Generator], Tensor]
"""What happens to activations at a slot, given its number and a source of draws."""


def relaxed_bernoulli(
    logits: Tensor, shape: torch.Size, *, tau: float, generator: torch.Generator
) -> Tensor:
    """Draw numbers in [0, 1] that exceed one half with probability sigmoid(logits)."""
    u = torch.rand(shape, generator=generator, device=logits.device, dtype=logits.dtype)
    return torch.sigmoid((logits + torch.logit(u)) / tau)


class ConcreteDropout(Part):
    """The dropout of all slots of a net: relaxed at learnable rates, ordinary at fixed ones."""

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


class InputMask(Part):
    """Multiplies each input feature by a random keep variable, without rescaling.

    In training every example has a draw of its own, relaxed when learnable and 0 or 1 when
    fixed. Evaluation is deterministic.
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


@dataclass
class _ActiveDropout:
    """The dropout that slots apply during one call of a net."""

    dropout: Act
    generator: torch.Generator
    num_reads: int = 0
    """How often a slot asked; 0 after the call means that the net has no slots."""


_current: ContextVar[_ActiveDropout | None] = ContextVar("tuneparts_dropout", default=None)


@contextmanager
def dropping(dropout: Act, generator: torch.Generator) -> Iterator[_ActiveDropout]:
    """Let slots drop by these rates inside the block; outside they pass their input on.

    Example:
        >>> import torch
        >>> slot = DropoutSlot(0, 0.0)
        >>> half = ConcreteDropout([0.5], learnable=False)
        >>> with dropping(half, torch.Generator().manual_seed(0)):
        ...     sorted(set(slot(torch.ones(100)).tolist()))
        [0.0, 2.0]
        >>> set(slot(torch.ones(100)).tolist())
        {1.0}
    """
    active = _ActiveDropout(dropout, generator)
    token = _current.set(active)
    try:
        yield active
    finally:
        _current.reset(token)


class DropoutSlot(nn.Dropout):
    """A dropout layer whose rate and randomness come from the `dropping` block around the call.

    It does not read the net's train or eval mode: a hyper step drops in either.
    """

    def __init__(self, slot: int, p: float) -> None:
        super().__init__(p)
        self.slot = slot

    def forward(self, h: Tensor) -> Tensor:
        """Drop activations inside a `dropping` block; return them unchanged outside."""
        active = _current.get()
        if active is None:
            return h
        active.num_reads += 1
        return active.dropout(h, self.slot, active.generator)

    def extra_repr(self) -> str:
        """Slot number and the net's own rate."""
        return f"slot={self.slot}, p={self.p}"
