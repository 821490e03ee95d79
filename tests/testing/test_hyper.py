"""The contract tests find what they are there to find: one broken hyper for each law."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

import pytest
import torch
from torch import Tensor

from tuneparts.hypers import POSITIVE, REAL, Call, Hyper, Number
from tuneparts.testing import HyperContract


class Scaled(Hyper):
    """Keeps every law: scales outputs."""

    factor: Annotated[float, Number(POSITIVE, "factor of outputs", identity=1.0)] = 1.5

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK * now["factor"]


class Whim(Scaled):
    """Draws from the generator of the whole process."""

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return super().on_outputs(outputs_BK, now) + 0.01 * torch.randn(outputs_BK.shape)


class Detached(Scaled):
    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK * now["factor"].detach() + 0 * now["factor"]


class WrongGradient(Scaled):
    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        factor = now["factor"]
        return outputs_BK * (2 * factor - factor.detach())


class NotStill(Scaled):
    factor: Annotated[float, Number(POSITIVE, "factor of outputs", identity=1.0)] = 1.5
    offset: Annotated[float, Number(REAL, "added", identity=0.0)] = 0.2

    def part(self, shapes: Any, *, name: str, learnable: bool) -> Any:
        part = super().part(shapes, name=name, learnable=learnable)
        part.is_identity = False  # so that it is called, where it would be skipped
        return part

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK * now["factor"] + now["offset"] + 0.1


class Misplaced(Scaled):
    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        return self.replaced({"factor": 2 * found[name]})


class Remembers(Scaled):
    """Its part keeps a number in its state even when it is fixed."""

    def part(self, shapes: Any, *, name: str, learnable: bool) -> Any:
        part = super().part(shapes, name=name, learnable=learnable)
        part.register_buffer("count", torch.zeros(()))
        return part


class Undeclared(Scaled):
    def metrics(self, name: str) -> Any:
        return ()


class Contract(HyperContract):
    __test__ = False

    def __init__(self, hyper: Hyper) -> None:
        self.hyper = hyper  # type: ignore[misc]


LAWS = [name for name in dir(HyperContract) if name.startswith("test_")]


@pytest.mark.parametrize("law", LAWS)
def test_a_good_hyper_keeps_every_law(law: str) -> None:
    getattr(Contract(Scaled()), law)()


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Whim, "test_its_draws_come_from_the_generator_alone"),
        (Detached, "test_the_gradient_reaches_every_number"),
        (WrongGradient, "test_the_gradient_reaches_every_number"),
        (NotStill, "test_at_its_identity_it_does_nothing"),
        (Misplaced, "test_reported_values_are_placed_by_at"),
        (Remembers, "test_frozen_it_leaves_no_state"),
        (Undeclared, "test_what_it_reports_is_declared"),
    ],
)
def test_a_broken_hyper_is_found(broken: type[Hyper], law: str) -> None:
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError):
        getattr(Contract(broken()), law)()


def test_a_class_that_no_worker_could_import_is_found() -> None:
    class Local(Scaled):
        pass

    with pytest.raises(ValueError, match="stands inside a function"):
        Contract(Local()).test_it_survives_json()
