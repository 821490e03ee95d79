"""The contract tests find what they are there to find: one broken algorithm for each law."""

import dataclasses
import random
from typing import Any

import pytest

from tuneparts.search.algorithms.base import (
    RandomSearch,
    _drawn_trials,
    _stretch,
    draw,
    whole_trial,
)
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.segment import ANY, Batch
from tuneparts.testing import AlgorithmContract


class Whim(RandomSearch):
    """Draws from the generator of the whole process."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        values = [{"x": random.random()} for _ in range(self.num_trials)]
        yield Batch(
            tuple(whole_trial(arm, seed=seed, index=i, values=v) for i, v in enumerate(values))
        )


class Arrival(RandomSearch):
    """Prefers what it was told first."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        first = [
            whole_trial(arm, seed=seed, index=i, values=draw(arm, seed, i))
            for i in range(self.num_trials - 1)
        ]
        results = yield Batch(tuple(first))
        chosen = next(iter(results)).index
        values = draw(arm, seed, chosen)
        yield Batch((whole_trial(arm, seed=seed, index=self.num_trials - 1, values=values),))


class Hasty(RandomSearch):
    """Decides by the trial that ends first, and does not say that its timing is free."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        *some, last = _drawn_trials(arm, seed, range(self.num_trials))
        (told,) = yield Batch(tuple(some), awaits=ANY)
        values = draw(arm, seed, told.index)
        yield Batch((whole_trial(arm, seed=seed, index=last.trial.index, values=values),))


class Endless(RandomSearch):
    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        while True:
            yield Batch(())


class Miscounted(RandomSearch):
    def trials_per_seed(self, space: Any) -> int:
        return self.num_trials + 1


class Thrifty(RandomSearch):
    """Says that it costs less than it does."""

    def cost(self, arm: Any) -> Any:
        return dataclasses.replace(super().cost(arm), most=1)


class Abandoning(RandomSearch):
    """Runs the first interval of each trial, and says nothing of the rest."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        for batch in super().proposals(arm, seed, metric):
            yield Batch(tuple(_stretch(one, number=0, bounds=(0, 2)) for one in batch.run))


class Jumping(RandomSearch):
    """Starts in the middle."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        for batch in super().proposals(arm, seed, metric):
            yield Batch(tuple(_stretch(one, number=1, bounds=(8, 16)) for one in batch.run))


class Careless(Asha):
    """Goes on with trials that failed."""

    def proposals(self, arm: Any, seed: int, metric: Any) -> Any:
        trials = [
            whole_trial(arm, seed=seed, index=i, values=draw(arm, seed, i))
            for i in range(self.num_trials)
        ]
        for number, bounds in enumerate([(0, 2), (2, 16)]):
            yield Batch(tuple(_stretch(one, number=number, bounds=bounds) for one in trials))


class Deaf(RandomSearch):
    """Becomes an algorithm of another class when its trials are set."""

    def with_trials(self, num_trials: int) -> Any:
        return RandomSearch(num_trials=num_trials)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Whim, "it_repeats_itself"),
        (Whim, "it_leaves_global_random_numbers_alone"),
        (Arrival, "it_does_not_matter_who_is_faster"),
        (Hasty, "it_does_not_matter_who_is_faster"),
        (Endless, "it_repeats_itself"),
        (Miscounted, "it_runs_as_many_trials_as_it_says"),
        (Thrifty, "it_spends_no_more_than_it_says"),
        (Abandoning, "every_trial_ends_once"),
        (Jumping, "segments_of_a_trial_join"),
        (Careless, "every_trial_ends_once"),
        (Deaf, "trials_can_be_set"),
    ],
)
def test_a_broken_law_is_found(broken: Any, law: str) -> None:
    class Contract(AlgorithmContract):
        algorithm = broken(num_trials=4, **({"min_steps": 2} if broken is Careless else {}))

    with pytest.raises(AssertionError):
        getattr(Contract(), f"test_{law}")()
