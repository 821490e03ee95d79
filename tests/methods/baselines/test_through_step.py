"""Hypers by the gradient of held-out data through the last weight step (Luketina et al. 2016)."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers.kinds import LabelSmoothing, WeightDecay
from tuneparts.methods.baselines._validation import ValidationLearner
from tuneparts.methods.baselines.config import LINKED_STEPS, ValidationSet
from tuneparts.training import checkpoint

SMOOTHED = {"smoothing": LabelSmoothing(rate=0.2), "decay": WeightDecay(strength=0.05)}
MIXED = {**SMOOTHED, "affine": {"rotation": 0.3}, "temperature": 1.5, "samples": 2}


def learner(context: Any, small: Any, **fields: Any) -> ValidationLearner:
    sgd = {"kind": "sgd", "lr": 0.3, **fields.pop("sgd", {})}
    values = {"hypers": SMOOTHED, "hyper_lr": 0.05, "through_step": True, "optimiser": sgd}
    made = parse(ValidationSet, {**small, **values, **fields}).build(context)
    assert isinstance(made, ValidationLearner)
    return made


def rows_of(made: ValidationLearner) -> list[dict[str, float]]:
    rows = []
    while not made.finished:
        rows.append(made.advance())
    return rows


def in_double(made: ValidationLearner) -> ValidationLearner:
    made.net.double()
    made.hypers.double()
    take = made.train_data.take

    def taken(indices: Tensor) -> tuple[Tensor, Tensor]:
        x, y_B = take(indices)
        return x.double(), y_B

    made.train_data.take = taken  # type: ignore[method-assign]
    return made


def held_out_after_step(made: ValidationLearner) -> float:
    """The held-out loss after one weight step, by the steps that run without `through_step`."""
    twin = copy.deepcopy(made)
    twin.weight_step()
    return twin._held_out_loss().item()


@pytest.mark.parametrize(
    "sgd",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
    ids=["plain", "momentum", "nesterov"],
)
@pytest.mark.parametrize("hypers", [SMOOTHED, MIXED], ids=["training loss only", "mixed"])
def test_it_is_the_derivative_of_held_out_loss_through_the_very_same_step(
    context, small, sgd, hypers
) -> None:
    made = in_double(learner(context, small, sgd=sgd, hypers=hypers))
    for _ in range(3):  # momentum that is not zero
        made.step()
    differences = []
    for parameter in made.hypers.learnable():
        flat = parameter.data.view(-1)
        for index in range(len(flat)):
            before = flat[index].item()
            ends = []
            for step in (1e-6, -1e-6):
                flat[index] = before + step
                ends.append(held_out_after_step(made))
            flat[index] = before
            differences.append((ends[0] - ends[1]) / 2e-6)
    made.step()
    found = torch.cat([p.grad.flatten() for p in made.hypers.learnable() if p.grad is not None])
    wanted = torch.tensor(differences, dtype=torch.float64)
    assert (wanted != 0).all()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-9)


def test_the_weights_move_as_in_any_other_weight_step(context, small) -> None:
    made = learner(context, small)
    twin = copy.deepcopy(made)
    made.step()
    twin.weight_step()
    for one, other in zip(made.net.parameters(), twin.net.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_stop_and_resume_is_the_uninterrupted_run(context, small) -> None:
    whole = learner(context, small, hypers=MIXED, finetune={"fraction": 0.25})
    rows = rows_of(whole)
    stopped = learner(context, small, hypers=MIXED, finetune={"fraction": 0.25})
    stopped.advance()
    resumed = learner(context, small, hypers=MIXED, finetune={"fraction": 0.25})
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(stopped.state_dict())))
    assert rows_of(resumed) == rows[1:]


def test_frozen_layers_stay(context, small) -> None:
    made = learner(context, small)
    frozen = next(iter(made.net.parameters()))
    frozen.requires_grad_(False)
    before = frozen.clone()
    made.step()
    assert torch.equal(frozen, before)


def test_adam_is_refused_and_so_is_learning_without_it() -> None:
    with pytest.raises(ConfigError, match="differentiates a step of SGD"):
        parse(ValidationSet, {"through_step": True})
    with pytest.raises(ConfigError, match=r"`decay` cannot be learnt here.*`through_step`"):
        parse(ValidationSet, {"hypers": {"decay": WeightDecay()}})


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [(1, 10, [LINKED_STEPS] * 2 + [1] * 2), (3, 12, [1, 1, LINKED_STEPS] * 2)],
)
def test_it_costs_four_steps_and_ends_with_plain_updates(
    context, small, every, steps, expected
) -> None:
    made = learner(context, {**small, "steps": steps, "interval": steps, "hyper_every": every})
    moves = []
    while not made.finished:
        moves.append(made.step())
        made._steps += moves[-1].cost
    assert [move.cost for move in moves] == expected
    assert all(("train/hyper_loss" in step.losses) is (step.cost > 1) for step in moves)
