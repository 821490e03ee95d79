"""The training loop with a step of pencil and paper."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from tuneparts.core.errors import CheckpointError, DivergedError
from tuneparts.data.config import Data
from tuneparts.training.config import Method
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import LoopLearner, Step


class PaperConfig(Method):
    method: Literal["paper"] = "paper"
    steps: int = 10
    interval: int = 4

    def build(self, context: Context) -> Learner:
        return PaperLearner(self, context)


class PaperLearner(LoopLearner, values=("value",)):
    """Halves a number a step; a step costs two steps, and one where the budget ends."""

    cost = 2

    def __init__(self, config: PaperConfig, context: Context) -> None:
        super().__init__(config, context)
        self.value = torch.tensor(1.0)
        self.evaluated_at: list[int] = []

    def step(self) -> Step:
        loss, self.value = self.value, self.value / 2
        left = self.config.steps - self.steps
        return Step(min(self.cost, left), {"train/loss": loss})

    def evaluate(self) -> dict[str, float]:
        self.evaluated_at.append(self.steps)
        return {"val/accuracy": self.progress}


class Constant(PaperLearner):
    """Sees these losses, one after the other."""

    losses: tuple[float, ...] = ()
    cost = 1

    def step(self) -> Step:
        number = self.steps
        return Step(1, {"train/loss": torch.tensor(self.losses[number])})


@pytest.fixture(scope="module")
def context() -> Context:
    task = Data(name="stripes", num_train=20, num_val=10, num_test=10).load()
    return Context(task=task, seed=3, device=torch.device("cpu"))


def rows(learner: LoopLearner) -> list[dict[str, float]]:
    found = []
    while not learner.finished:
        found.append(learner.advance())
    return found


def test_an_interval_ends_when_its_steps_are_spent_and_the_last_at_the_budget(context) -> None:
    learner = PaperLearner(PaperConfig(steps=11, interval=4), context)
    assert [row["cost/steps"] for row in rows(learner)] == [4.0, 8.0, 11.0]
    assert learner.evaluated_at == [4, 8, 11]
    assert learner.finished
    assert learner.steps == 11


def test_a_row_has_the_mean_loss_of_its_interval_and_what_was_evaluated(context) -> None:
    learner = PaperLearner(PaperConfig(steps=10, interval=4), context)
    first, second, last = rows(learner)
    costs = {"cost/steps": 4.0, "cost/updates": 2.0}
    assert first == {"train/loss": (1 + 1 / 2) / 2, **costs, "val/accuracy": 0.4}
    assert second["train/loss"] == (1 / 4 + 1 / 8) / 2
    costs = {"cost/steps": 10.0, "cost/updates": 5.0}
    assert last == {"train/loss": 1 / 16, **costs, "val/accuracy": 1.0}


def test_the_mean_is_taken_in_double_precision(context) -> None:
    class Third(Constant):
        losses = (1e8, 1.0, 1.0)

    learner = Third(PaperConfig(steps=3, interval=3), context)
    assert learner.advance()["train/loss"] == pytest.approx((1e8 + 2) / 3, abs=1e-6)


def test_a_step_that_costs_more_than_an_interval_reports_once(context) -> None:
    learner = PaperLearner(PaperConfig(steps=6, interval=1), context)
    assert [row["cost/steps"] for row in rows(learner)] == [2.0, 4.0, 6.0]


def test_losses_that_come_now_and_then_are_averaged_over_their_own_steps(context) -> None:
    class Sometimes(Constant):
        losses = (1.0, 2.0, 3.0, 4.0)

        def step(self) -> Step:
            step = super().step()
            extra: dict[str, Tensor] = {}
            if self.steps % 2:
                extra = {"train/hyper_loss": 10 * step.losses["train/loss"]}
            return Step(step.cost, {**step.losses, **extra})

    row = Sometimes(PaperConfig(steps=4, interval=4), context).advance()
    assert row["train/loss"] == 2.5
    assert row["train/hyper_loss"] == 30.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(context, bad: float) -> None:
    class Diverging(Constant):
        losses = (1.0, 1.0, 1.0, bad)

    learner = Diverging(PaperConfig(steps=4, interval=2), context)
    learner.advance()
    with pytest.raises(
        DivergedError, match=r"`train/loss` = .*, 1 updates after step 2 \(seed 3\).*Lower the"
    ):
        learner.advance()


def test_a_resumed_loop_reports_what_the_whole_one_does(context) -> None:
    whole = rows(PaperLearner(PaperConfig(), context))
    stopped = PaperLearner(PaperConfig(), context)
    stopped.advance()
    resumed = PaperLearner(PaperConfig(), context)
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.steps == 4
    assert rows(resumed) == whole[1:]


@pytest.mark.parametrize(
    "state",
    [{}, {"steps": 4}, {"value": torch.tensor(1.0)}, {"steps": None, "value": torch.ones(1)}],
    ids=["nothing", "no value", "no steps", "steps that are none"],
)
def test_a_state_of_something_else_is_refused(context, state: dict[str, Any]) -> None:
    learner = PaperLearner(PaperConfig(), context)
    with pytest.raises(CheckpointError, match="PaperLearner cannot take this one"):
        learner.load_state_dict(state)
    assert learner.steps == 0
