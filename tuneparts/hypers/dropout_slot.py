"""Dropout slots: the places inside a net where hypers act on activations.

A net's forward has no argument for rates or generators, and its parameters must stay its own.
So a slot holds only its number, and the caller says, for the length of one call, which dropout to
apply. Copies of a net, `functional_call` and several nets under one set of hypers
then need no bookkeeping.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Act = Callable[[Tensor, int, torch.Generator], Tensor]
"""What happens to activations at a slot, given its number and a source of draws."""


@dataclass
class ActiveDropout:
    """The dropout that slots apply during one call of a net."""

    dropout: Act
    generator: torch.Generator
    num_reads: int = 0
    """How often a slot asked; 0 after the call means that the net has no slots."""


_current: ContextVar[ActiveDropout | None] = ContextVar("tuneparts_dropout", default=None)


@contextmanager
def dropping(dropout: Act, generator: torch.Generator) -> Iterator[ActiveDropout]:
    """Let slots drop by these rates inside the block; outside they pass their input on.

    Example:
        >>> import torch
        >>> from tuneparts.hypers.concrete import ConcreteDropout
        >>> slot = DropoutSlot(0, 0.0)
        >>> half = ConcreteDropout([0.5], learnable=False)
        >>> with dropping(half, torch.Generator().manual_seed(0)):
        ...     sorted(set(slot(torch.ones(100)).tolist()))
        [0.0, 2.0]
        >>> set(slot(torch.ones(100)).tolist())
        {1.0}
    """
    active = ActiveDropout(dropout, generator)
    token = _current.set(active)
    try:
        yield active
    finally:
        _current.reset(token)


class DropoutSlot(nn.Dropout):
    """A dropout layer whose rate and randomness come from the `dropping` block around the call.

    It does not read the net's train or eval mode: a hyper step drops in either.

    Args:
        slot: number of this layer among the dropout layers of its net.
        p: rate that the net itself asked for.
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
