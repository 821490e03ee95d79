"""The hypers of a run: modules that hold their numbers, as parameters or as constants.

Gradient steps move an unconstrained `raw` parameter; a link maps it into the range where the
number makes sense. A fixed number skips the link, so that a bound which the link only
approaches (a range of exactly 0) can be held.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.hypers.hyper import Call, Hyper, Link, Shapes


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
        >>> from tuneparts.hypers import UNIT
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
            if learnable and not is_held and not link.low < value < link.high:
                raise ConfigError(
                    f"a learnable `{name}` must start strictly between {link.low:g} and "
                    f"{link.high:g}, but got {value:g}, which no gradient step can leave. "
                    "Start inside (0.05 is usual), or freeze its part."
                )
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


class Part(nn.Module):
    """A hyper in a run: a module with its numbers, as parameters or as constants.

    Its call depends on where it acts: `(x, generator, training=...)` for inputs, `(h, slot,
    generator)` for activations, `(outputs_BK)` for outputs, `(losses_B, outputs_BK, targets_B)` for
    the loss, and `(weights)` for weights.
    """

    is_identity: bool
    """Whether it is fixed where it does nothing, so that it need not be called."""
    makes_copies: ClassVar[bool] = False
    """Whether it acts on inputs by `(x, num_samples, generator)` and copies each input itself."""

    def draws(self, *, training: bool) -> bool:  # noqa: ARG002
        """Whether a call draws random numbers."""
        return False

    def values(self) -> dict[str, float]:
        """The numbers by name in reports, without `hyper/`."""
        raise NotImplementedError


class NumberedPart(Part):
    """The part of any hyper that overrides one of the methods `on_...`."""

    def __init__(self, hyper: Hyper, shapes: Shapes, *, name: str, learnable: bool) -> None:
        super().__init__()
        self.hyper = hyper
        self._place = hyper.place()
        self._names: dict[str, list[str]] = {}
        is_still = []
        for field, stem in hyper.stems(name).items():
            if hasattr(self, field):
                raise ConfigError(
                    f"a number of a hyper has a name that torch's modules do not use, but "
                    f"{type(hyper).__name__} has `{field}`. Rename the field."
                )
            number, given = hyper.numbers()[field], hyper.counted(field, shapes)
            names = [f"{stem}.{i}" for i in range(len(given))] if number.each else [stem]
            parameter = ConstrainedParameter(
                given, link=number.link, learnable=learnable, names=names
            )
            self.add_module(field, parameter)
            self._names[field] = names
            is_still.append(all(one == number.identity for one in given))
        self.is_identity = not learnable and bool(is_still) and all(is_still)

    def forward(self, *given: Any, training: bool = True) -> Tensor:
        """Act, as the hyper says."""
        generator = None
        if self._place in ("inputs", "activations"):
            *given, generator = given  # type: ignore[assignment]
        now = Call(self, generator, training=training)
        found: Tensor = getattr(self.hyper, f"on_{self._place}")(*given, now)
        return found

    def draws(self, *, training: bool) -> bool:
        return self.hyper.is_random and (training or self._place == "inputs")

    def values(self) -> dict[str, float]:
        return {
            name: value
            for field, names in self._names.items()
            for name, value in zip(names, self.parameter(field).numbers(), strict=True)
        }

    def tensor(self, field: str) -> Tensor:
        """A number (), or (K,) where there is one for each."""
        found = self.parameter(field).tensor()
        return found if self.hyper.numbers()[field].each else found[0]

    def parameter(self, field: str) -> ConstrainedParameter:
        """What holds the number, or the numbers, of a field."""
        if field not in self._names:
            raise UnknownNameError(f"number of {type(self.hyper).__name__}", field, self._names)
        found = self.get_submodule(field)
        assert isinstance(found, ConstrainedParameter)
        return found
