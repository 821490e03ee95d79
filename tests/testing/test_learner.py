"""The contract tests find what they are there to find: one broken learner for each law."""

from typing import Any, Literal

import numpy as np
import pytest
import torch

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.baselines.standard import StandardLearner
from tuneparts.testing import LearnerContract
from tuneparts.testing.null import NullConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step


class BrokenConfig(Standard):
    fault: str = ""

    def build(self, context: Context) -> Learner:
        return FAULTS.get(self.fault, StandardLearner)(self, context)


class Unfound(Standard):
    """Has the name of another method."""

    method: Literal["standard"] = "standard"


class Forgetful(StandardLearner):
    """Draws from a generator that hides in a tuple of a class of its own."""

    def __init__(self, config: Any, context: Context) -> None:
        super().__init__(config, context)
        self.noise = Noise()

    def step(self) -> Step:
        step = super().step()
        return Step(step.cost, {"train/loss": step.losses["train/loss"] + self.noise.draw()})


class Noise:
    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def draw(self) -> float:
        return float(self._rng.random())


class Counting(StandardLearner):
    """Counts its steps, to no end, and does not save the count."""

    num_steps = 0

    def step(self) -> Step:
        self.num_steps += 1
        return super().step()


class Overspending(StandardLearner):
    @property
    def finished(self) -> bool:
        return self._steps >= self.config.steps + 4


class Endless(StandardLearner):
    finished = False  # type: ignore[assignment]

    def advance(self) -> dict[str, float]:
        return {}


class Chatty(StandardLearner):
    def evaluate(self) -> dict[str, float]:
        return {**super().evaluate(), "val/mood": 1.0}


class Peeking(StandardLearner):
    """Reports scores of test data all the time."""

    def evaluate(self) -> dict[str, float]:
        return {**super().evaluate(), **self.score(self._test, "test")}


class Unscored(StandardLearner):
    """Reports the one score of test data, and not the other."""

    def evaluate(self) -> dict[str, float]:
        return {k: v for k, v in super().evaluate().items() if k != "test/nll"}


class Diverging(StandardLearner):
    def evaluate(self) -> dict[str, float]:
        return {**super().evaluate(), "val/nll": float("nan")}


class Lazy(StandardLearner):
    """Learns nothing."""

    def step(self) -> Step:
        return Step(1, {"train/loss": torch.tensor(2.0)})


class Unseeded(StandardLearner):
    def __init__(self, config: Any, context: Context) -> None:
        super().__init__(config, Context(task=context.task, seed=7, device=context.device))


class Whim(StandardLearner):
    """Draws from the generator of the whole process."""

    def step(self) -> Step:
        torch.rand(1)
        return super().step()


SHARED = torch.zeros(1)


class Sharing(StandardLearner, values=("shared",)):
    """Two learners count in one tensor."""

    shared = SHARED

    def step(self) -> Step:
        SHARED.add_(1)
        return super().step()

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.shared = SHARED


FAULTS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        Forgetful, Counting, Overspending, Endless, Chatty, Peeking, Unscored, Diverging, Lazy,
        Unseeded, Whim, Sharing,
    )
}  # fmt: skip


class TestStandard(LearnerContract):
    config = BrokenConfig()


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("Forgetful", "stop_serialise_resume_is_the_uninterrupted_run"),
        ("Forgetful", "no_part_of_a_learner_is_forgotten_by_its_state"),
        ("Counting", "no_part_of_a_learner_is_forgotten_by_its_state"),
        ("Overspending", "steps_are_counted_and_the_budget_is_kept"),
        ("Endless", "steps_are_counted_and_the_budget_is_kept"),
        ("Chatty", "only_known_metrics_are_reported_and_test_scores_once"),
        ("Peeking", "only_known_metrics_are_reported_and_test_scores_once"),
        ("Unscored", "only_known_metrics_are_reported_and_test_scores_once"),
        ("Diverging", "only_known_metrics_are_reported_and_test_scores_once"),
        ("Lazy", "the_loss_falls_on_toy_data"),
        ("Unseeded", "same_seed_same_numbers_another_seed_other_numbers"),
        ("Whim", "global_generators_are_untouched"),
        ("Sharing", "two_learners_from_one_state_share_nothing"),
    ],
)
def test_a_broken_law_is_found(fault: str, law: str) -> None:
    class Contract(LearnerContract):
        config = BrokenConfig(fault=fault)

    with pytest.raises((AssertionError, UnknownNameError)):
        getattr(Contract(), f"test_{law}")()


def test_a_method_that_no_worker_finds_is_found_out() -> None:
    class Contract(LearnerContract):
        config = Unfound()

    with pytest.raises(ConfigError, match="is the name of"):
        Contract().test_a_worker_finds_the_config_again()


def test_a_config_without_batches_is_shortened_by_the_fields_that_it_has() -> None:
    class Contract(LearnerContract):
        config = NullConfig()

    assert Contract().changed(Contract.short).steps == 12
