"""Constrained parameters: numbers of a hyper that are learnt within a range, or held fixed.

Gradient steps move an unconstrained `raw` parameter; a link maps it into the range where the
number makes sense. A fixed number skips the link, so that a bound which the link only
approaches (a range of exactly 0) can be held.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tuneparts.core.errors import ConfigError


@dataclass(frozen=True)
class Link:
    """A smooth increasing map from the reals onto an open interval, with its inverse."""

    value: Callable[[Tensor], Tensor]
    raw: Callable[[float], float]
    low: float
    high: float


def _inverse_softplus(value: float) -> float:
    # log(exp(v) - 1), written so that it neither overflows nor cancels.
    return value + math.log(-math.expm1(-value))


def _logit(value: float) -> float:
    return math.log(value) - math.log1p(-value)


POSITIVE = Link(functional.softplus, _inverse_softplus, 0.0, math.inf)
LOG = Link(torch.exp, math.log, 0.0, math.inf)
UNIT = Link(torch.sigmoid, _logit, 0.0, 1.0)
REAL = Link(torch.positive, float, -math.inf, math.inf)


class ConstrainedParameter(nn.Module):
    """K numbers of one hyper that stay in their range while they are learnt.

    Learnable numbers are a parameter, and so part of `state_dict`; fixed ones are a
    non-persistent buffer, because the config alone determines them.

    Args:
        values: initial values (learnable) or the values (fixed).
        link: range of the numbers; fixed ones may touch its ends. Of several learnable ones those
            that start at an end are held there, and the others learnt.
        learnable: whether gradient steps move them.
        names: of the numbers, for error messages.

    Example:
        >>> from tuneparts.hypers.constrained import UNIT, ConstrainedParameter
        >>> rate = ConstrainedParameter([0.25], link=UNIT, learnable=True, names=["rate"])
        >>> rate.tensor().requires_grad
        True
        >>> ConstrainedParameter([0.0], link=UNIT, learnable=False, names=["rate"]).numbers()
        [0.0]
    """

    raw: nn.Parameter | None
    fixed: Tensor
    held: Tensor

    def __init__(
        self, values: Sequence[float], *, link: Link, learnable: bool, names: Sequence[str]
    ) -> None:
        super().__init__()
        self.link = link
        self.learnable = learnable
        self.given = tuple(float(value) for value in values)
        held = [learnable and not link.low < value < link.high for value in self.given]
        if all(held):
            held = [False] * len(held)  # refused below: nothing would be learnt
        for name, value, is_held in zip(names, self.given, held, strict=True):
            _check(name, value, link, learnable=learnable and not is_held)
        self._has_held = any(held)
        if learnable:
            pairs = zip(self.given, held, strict=True)
            raw = [0.0 if is_held else link.raw(value) for value, is_held in pairs]
            self.raw = nn.Parameter(torch.tensor(raw))
            if self._has_held:
                self.register_buffer("held", torch.tensor(held), persistent=False)
                self.register_buffer("fixed", torch.tensor(self.given), persistent=False)
        else:
            self.raw = None
            self.register_buffer("fixed", torch.tensor(self.given), persistent=False)

    def tensor(self) -> Tensor:
        """The numbers (K,), differentiable when learnable."""
        if self.raw is None:
            return self.fixed
        value = self.link.value(self.raw)
        return torch.where(self.held, self.fixed, value) if self._has_held else value

    def numbers(self) -> list[float]:
        """The numbers as floats; fixed ones exactly as given."""
        if self.raw is None:
            return list(self.given)
        with torch.no_grad():
            return [float(value) for value in self.tensor().tolist()]


def _check(name: str, value: float, link: Link, *, learnable: bool) -> None:
    if not link.low <= value <= link.high or not math.isfinite(value):
        raise ConfigError(
            f"`{name}` must lie between {link.low:g} and {link.high:g}, but got {value:g}."
        )
    if learnable and not link.low < value < link.high:
        raise ConfigError(
            f"a learnable `{name}` must start strictly between {link.low:g} and {link.high:g}, "
            f"but got {value:g}, which no gradient step can leave. "
            f"Start inside (0.05 is usual), or freeze its part."
        )
