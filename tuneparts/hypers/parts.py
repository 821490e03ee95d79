"""The hyperparameters of a run: modules that hold their numbers, as parameters or as constants.

Dropout slots are the places inside a net where hyperparameters act on activations. A slot holds
only its number, and the caller says, for the length of one call, which dropout to apply. Copies of
a net, `functional_call` and several nets under one set of hyperparameters then need no bookkeeping.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.hypers.hyper import Call, Hyper, Shapes, _Link
from tuneparts.hypers.kinds import COUNT

Act = Callable[[Tensor, int, torch.Generator], Tensor]
"""What happens to activations at a slot, given its number and a source of draws."""


class _ConstrainedParameter(nn.Module):
    """K numbers that stay in their range: a parameter under a link, or a non-persistent buffer.

    Of several learnable ones those that start at an end of the range are held there.
    """

    raw: nn.Parameter | None
    fixed: Tensor
    held: Tensor

    def __init__(
        self, values: Sequence[float], *, link: _Link, learnable: bool, names: Sequence[str]
    ) -> None:
        super().__init__()
        self.link = link
        self.learnable = learnable
        self.given = tuple(float(value) for value in values)
        held = [learnable and not link.low < value < link.high for value in self.given]
        if held and all(held):
            raise ConfigError(
                f"a learnable `{names[0]}` must start strictly between {link.low:g} and "
                f"{link.high:g}, but got {self.given[0]:g}, which no gradient step can leave. "
                "Start inside (0.05 is usual), or freeze its part."
            )
        self._has_held = any(held)
        self.raw = None
        if learnable:
            pairs = zip(self.given, held, strict=True)
            raw = [0.0 if is_held else link.raw(value) for value, is_held in pairs]
            self.raw = nn.Parameter(torch.tensor(raw))
        if self._has_held:
            self.register_buffer("held", torch.tensor(held), persistent=False)
        if self._has_held or not learnable:
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
        found: list[float] = self.tensor().tolist()
        return found


class _Part(nn.Module):
    """A hyperparameter in a run: a module with its numbers, as parameters or as constants.

    Its call depends on where it acts: `(x, generator, training=...)` for inputs, `(h, slot,
    generator)` for activations, `(outputs_BK)` for outputs, `(losses_B, outputs_BK, targets_B)` for
    the loss, and `(weights)` for weights.
    """

    is_identity: bool
    """Whether it is fixed where it does nothing, so that it need not be called."""
    makes_copies: ClassVar[bool] = False
    """Whether it acts on inputs by `(x, num_samples, generator)` and copies each input itself."""

    def draws(self, *, training: bool) -> bool:
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """The numbers by name in reports, without `hyper/`."""
        raise NotImplementedError


class _NumberedPart(_Part):
    """The part of any hyperparameter that overrides one of the methods `on_...`."""

    def __init__(self, hyper: Hyper, shapes: Shapes, *, name: str, learnable: bool) -> None:
        super().__init__()
        self.hyper = hyper
        self._place = hyper.place()
        self._numbers = hyper.numbers()
        self._names: dict[str, list[str]] = {}
        vectors: dict[str, list[float]] = {}
        is_still = []
        for field, stem in hyper.stems(name).items():
            number, given = self._numbers[field], hyper.counted(field, shapes)
            held_in = number.held_in or field
            names = [f"{stem}.{i}" for i in range(len(given))] if number.each else [stem]
            self._names.setdefault(held_in, []).extend(names)
            vectors.setdefault(held_in, []).extend(given)
            is_still.append(all(one == number.identity for one in given))
        links = {number.held_in or field: number.link for field, number in self._numbers.items()}
        for held_in, values in vectors.items():
            if hasattr(self, held_in):
                raise ConfigError(
                    f"{type(hyper).__name__} has `{held_in}`: torch's modules use this name. "
                    "Rename the field."
                )
            names, link = self._names[held_in], links[held_in]
            parameter = _ConstrainedParameter(values, link=link, learnable=learnable, names=names)
            self.add_module(held_in, parameter)
        self.is_identity = not learnable and bool(is_still) and all(is_still)

    def forward(self, *given: Any, training: bool = True) -> Tensor:
        is_drawn = self._place in ("inputs", "activations")
        *given, generator = given if is_drawn else (*given, None)  # type: ignore[assignment]
        now = Call(self, generator, training=training)
        found: Tensor = getattr(self.hyper, f"on_{self._place}")(*given, now)
        return found

    def draws(self, *, training: bool) -> bool:
        return self.hyper.is_random and (training or self._place == "inputs")

    def values(self) -> dict[str, float]:
        return {
            name: value
            for held_in, names in self._names.items()
            for name, value in zip(names, self.parameter(held_in).numbers(), strict=True)
        }

    def tensor(self, field: str) -> Tensor:
        """A number (), or (K,) where there is one for each."""
        found = self.parameter(field).tensor()
        return found[0] if field in self._numbers and not self._numbers[field].each else found

    def parameter(self, field: str) -> _ConstrainedParameter:
        if field not in self._names:
            raise UnknownNameError(f"number of {type(self.hyper).__name__}", field, self._names)
        found = self.get_submodule(field)
        assert isinstance(found, _ConstrainedParameter)
        return found


class _MaskPart(_NumberedPart):
    """A mask is drawn in training only, and not if it is a fixed one of zeros and ones."""

    def __init__(self, hyper: Hyper, shapes: Shapes, *, name: str, learnable: bool) -> None:
        super().__init__(hyper, shapes, name=name, learnable=learnable)
        self._is_vector = len(shapes.in_shape) == 1
        self._is_random = learnable or any(0 < k < 1 for k in self.parameter("keep").given)

    def draws(self, *, training: bool) -> bool:
        return training and self._is_random

    def values(self) -> dict[str, float]:
        # The probabilities of an image's pixels are too many for a report.
        each = super().values()
        return {COUNT: float(sum(k > 0.5 for k in each.values()))} | (
            each if self._is_vector else {}
        )


@dataclass
class _ActiveDropout:
    """What slots apply during one call of a net."""

    act: Act
    generator: torch.Generator
    num_reads: int = 0
    """How often a slot asked; 0 after the call means that the net has no slots."""


_current: ContextVar[_ActiveDropout | None] = ContextVar("tuneparts_dropout", default=None)


@contextmanager
def _dropping(act: Act, generator: torch.Generator) -> Iterator[_ActiveDropout]:
    """Let slots act in this way inside the block; outside they pass their input on."""
    active = _ActiveDropout(act, generator)
    token = _current.set(active)
    try:
        yield active
    finally:
        _current.reset(token)


class DropoutSlot(nn.Dropout):
    """A dropout layer that acts as the `_dropping` block around the call says, in any mode."""

    def __init__(self, slot: int, p: float) -> None:
        super().__init__(p)
        self.slot = slot

    def forward(self, h: Tensor) -> Tensor:
        active = _current.get()
        if active is None:
            return h
        active.num_reads += 1
        return active.act(h, self.slot, active.generator)

    def extra_repr(self) -> str:
        return f"slot={self.slot}, p={self.p}"
