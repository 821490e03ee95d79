from typing import Annotated

import pytest
import torch
from torch import Tensor

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.hypers import (
    POSITIVE,
    REAL,
    UNIT,
    Call,
    Hyper,
    LabelSmoothing,
    Number,
    Shapes,
    WeightDecay,
)

SHAPES = Shapes((4,), num_slots=2, num_outputs=3)


class Offsets(Hyper):
    """A number for each output."""

    shift: Annotated[
        float | tuple[float, ...], Number(REAL, "added to an output", identity=0.0, each="output")
    ] = 0.0

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        return outputs_BK + now["shift"]


class Gain(Hyper):
    """Two numbers, and a setting that is none."""

    low: Annotated[float, Number(POSITIVE, "least factor", "dB")] = 0.5
    high: Annotated[float, Number(POSITIVE, "largest factor")] = 2.0
    is_even: bool = False

    is_random = True

    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        u = torch.rand((len(x), 1), generator=now.generator)
        return x * (now["low"] + u * (now["high"] - now["low"]))


def test_it_has_a_number_for_each_output() -> None:
    part = Offsets().part(SHAPES, name="offsets", learnable=True)
    assert part.values() == {"offsets.0": 0.0, "offsets.1": 0.0, "offsets.2": 0.0}
    given = Offsets(shift=(1.0, 2.0, 3.0)).part(SHAPES, name="offsets", learnable=False)
    assert given(torch.zeros(1, 3)).tolist() == [[1, 2, 3]]
    with pytest.raises(ConfigError, match="needs one number for each output, but got 2 for 3"):
        Offsets(shift=(1.0, 2.0)).part(SHAPES, name="offsets", learnable=False)
    with pytest.raises(ConfigError, match="`num_outputs` is None"):
        Offsets().part(Shapes((4,)), name="offsets", learnable=False)


def test_several_numbers_are_named_by_their_fields() -> None:
    assert Gain().metrics("gain") == (
        Metric("hyper/gain_low", Direction.NONE, "dB", 3, "least factor"),
        Metric("hyper/gain_high", Direction.NONE, "", 3, "largest factor"),
    )
    assert Offsets().metrics("prior")[0].name == "hyper/prior.*"
    assert Gain(is_even=True).at({"gain_high": 3.0}, name="gain") == Gain(high=3.0, is_even=True)
    with pytest.raises(UnknownNameError, match="Did you mean `gain_low`"):
        Gain().at({"gain_lov": 3.0}, name="gain")


def test_values_that_run_on_are_placed_in_order() -> None:
    found = {"prior.2": 3.0, "prior.0": 1.0, "prior.1": 2.0}
    assert Offsets().at(found, name="prior").shift == (1.0, 2.0, 3.0)
    with pytest.raises(ConfigError, match=r"`prior.0` is missing"):
        Offsets().at({"prior.1": 1.0}, name="prior")


class Silent(Hyper):
    rate: Annotated[float, Number(UNIT, "nothing")] = 0.5


class Twofold(Offsets):
    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        return x + now["shift"][0]


class RandomOutputs(Offsets):
    is_random = True


class DeniedOutputs(Offsets):
    in_likelihood = False


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Silent, "Silent overrides none: a subclass overrides one of"),
        (Twofold, "Twofold overrides `on_inputs` and `on_outputs`"),
        (RandomOutputs, "RandomOutputs is random and acts on outputs"),
        (DeniedOutputs, "DeniedOutputs.in_likelihood = False: what acts on outputs enters"),
    ],
)
def test_a_class_that_makes_no_sense_is_refused(broken: type[Hyper], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        broken()


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan"), float("inf")])
def test_values_out_of_bounds_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        parse(LabelSmoothing, {"rate": value})


def test_a_hyper_that_draws_says_so() -> None:
    class Sly(Gain):
        is_random = False

    part = Sly().part(SHAPES, name="sly", learnable=False)
    with pytest.raises(ConfigError, match=r"Sly asks for a generator.*`is_random = True`"):
        part(torch.zeros(2, 4), torch.Generator())


def test_a_number_cannot_be_called_as_what_modules_have() -> None:
    class Odd(Hyper):
        training: Annotated[float, Number(UNIT, "a rate")] = 0.5

        def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
            return outputs_BK * now["training"]

    with pytest.raises(ConfigError, match="Odd has `training`"):
        Odd().part(SHAPES, name="odd", learnable=False)


def test_an_unknown_number_is_refused() -> None:
    class Typo(Offsets):
        def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
            return outputs_BK + now["shifts"]

    with pytest.raises(UnknownNameError, match="Did you mean `shift`"):
        Typo().part(SHAPES, name="typo", learnable=False)(torch.zeros(1, 3))


def test_label_smoothing_is_that_of_torch() -> None:
    outputs, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4
    part = LabelSmoothing(rate=0.3).part(SHAPES, name="smoothing", learnable=False)
    losses = torch.nn.functional.cross_entropy(outputs, y, reduction="none")
    wanted = torch.nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.3)
    torch.testing.assert_close(part(losses, outputs, y), wanted)


def test_weight_decay_is_that_of_sgd() -> None:
    weights = [torch.full((2, 2), 3.0, requires_grad=True), torch.ones(2, requires_grad=True)]
    part = WeightDecay(strength=0.1).part(SHAPES, name="decay", learnable=False)
    for weight, found in zip(weights, torch.autograd.grad(part(weights), weights), strict=True):
        torch.testing.assert_close(found, 0.1 * weight.detach())
