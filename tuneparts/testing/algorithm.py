"""The contract of a search algorithm."""

import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tuneparts.bench.null import NullConfig
from tuneparts.config import parse
from tuneparts.journal import TrialId
from tuneparts.schema import selection_metric
from tuneparts.search.algorithms import Algorithm
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Choice, Dimension, Uniform
from tuneparts.search.spec import Arm
from tuneparts.training.learner import MethodConfig

Score: TypeAlias = Callable[[Segment], float | None]
"""What a segment scores; None if it fails."""
_MOST_BATCHES = 10_000
"""An algorithm that has asked for so many does not end."""


def scrambled(segment: Segment) -> float:
    """A score without order or ties, another one at each budget."""
    return math.sin(37 * segment.trial.index + 11 * segment.until + 1)


def some_fail(segment: Segment) -> float | None:
    """Every fourth trial fails."""
    return None if segment.trial.index % 4 == 2 else scrambled(segment)


def some_diverge(segment: Segment) -> float:
    """Every third trial reports NaN from the start, another third an infinite number later."""
    if segment.trial.index % 3 == 0:
        return math.nan
    return math.inf if segment.trial.index % 3 == 1 and segment.start else scrambled(segment)


def all_diverge(segment: Segment) -> float:  # noqa: ARG001
    """No trial has a score."""
    return math.nan


def all_fail(segment: Segment) -> None:
    """Every trial fails in its first segment."""


def _failure(score: float | None) -> str | None:
    """Why a plan takes a trial for failed: it raised, or its score is no finite number."""
    return None if score is not None and math.isfinite(score) else "boom"


class AlgorithmContract:
    """The laws of a search algorithm; nothing is trained.

    Inherit it in a class that pytest collects, and name the algorithm. Where its arm needs another
    config or space than those here, name these too.

    Example:
        >>> from tuneparts.search.algorithms import RandomSearch
        >>> class TestMine(AlgorithmContract):
        ...     algorithm = RandomSearch(num_trials=3)
        >>> TestMine().test_it_repeats_itself()
    """

    algorithm: ClassVar[Algorithm]
    config: ClassVar[MethodConfig] = NullConfig(passes=16, interval=2)
    space: ClassVar[Mapping[str, Dimension]] = {
        "x": Uniform(low=0.1, high=1.0, log=True),
        "seconds": Choice(options=(0.0, 0.5, 2.0)),
    }
    metric: ClassVar[str] = "val/accuracy"
    scores: ClassVar[tuple[Score, ...]] = (
        scrambled,
        some_fail,
        some_diverge,
        all_diverge,
        all_fail,
    )

    @property
    def arm(self) -> Arm:
        """The arm that the algorithm runs in."""
        space = dict(self.space) if self.algorithm.has_space else {}
        return Arm(name="mine", config=self.config, algorithm=self.algorithm, space=space)

    def batches(
        self,
        score: Score,
        *,
        seed: int = 0,
        is_reversed: bool = False,
        algorithm: Algorithm | None = None,
    ) -> list[Batch]:
        """All batches of a replicate.

        Args:
            score: what each segment ends with.
            seed: of the replicate.
            is_reversed: tell the results of a batch in the opposite order.
            algorithm: in the place of that of the arm.
        """
        name = self.metric
        asked = (algorithm or self.arm.algorithm).proposals(self.arm, seed, selection_metric(name))
        found: list[Batch] = []
        results: Any = None
        while len(found) < _MOST_BATCHES:
            try:
                found.append(asked.send(results))
            except StopIteration:
                return found
            run = found[-1].run[::-1] if is_reversed else found[-1].run
            scored = {one.trial: score(one) for one in run}
            results = {
                trial: Result({} if value is None else {name: value}, _failure(value))
                for trial, value in scored.items()
            }
        raise AssertionError(f"an algorithm ends, but this one asked for {_MOST_BATCHES} batches")

    def test_it_survives_json(self) -> None:
        back = parse(Arm, json.loads(self.arm.model_dump_json()))
        assert type(back.algorithm) is type(self.algorithm)
        assert back == self.arm

    def test_it_repeats_itself(self) -> None:
        """A crashed search is resumed by running the generator against the journal again."""
        for score in self.scores:
            first = self.batches(score)
            random.seed(len(first))
            np.random.seed(len(first))
            assert self.batches(score) == first
            assert self.batches(score, is_reversed=True) == first

    def test_it_leaves_global_random_numbers_alone(self) -> None:
        random.seed(1)
        np.random.seed(1)
        expected = random.random(), np.random.random()
        random.seed(1)
        np.random.seed(1)
        self.batches(scrambled)
        assert (random.random(), np.random.random()) == expected

    def test_it_runs_as_many_trials_as_it_says(self) -> None:
        expected = self.algorithm.trials_per_seed(self.arm.space)
        trials = {one.trial for batch in self.batches(scrambled) for one in batch.run}
        assert trials == {TrialId("mine", 0, index) for index in range(expected)}
        for score in self.scores:
            started = {one.trial for batch in self.batches(score) for one in batch.run}
            assert started <= trials

    def test_segments_of_a_trial_join(self) -> None:
        """Each starts where the one before ended, on a whole number of intervals."""
        for score in self.scores:
            ends: dict[TrialId, tuple[int, int]] = {}
            for batch in self.batches(score):
                before = dict(ends)
                assert len({one.trial for one in batch.run}) == len(batch.run)
                for one in batch.run:
                    number, end = before.get(one.trial, (-1, 0))
                    assert (one.round, one.start) == (number + 1, end)
                    assert one.start < one.until <= one.config["passes"]
                    is_last = one.until == one.config["passes"]
                    assert is_last or one.until % one.config["interval"] == 0
                    if one.donor is not None:
                        assert before.get(one.donor) == (one.round - 1, one.start)
                    ends[one.trial] = one.round, one.until

    def test_every_trial_ends_once(self) -> None:
        """By failing, by being stopped, or at its budget; none is left waiting for ever.

        A trial that failed may go on only from the state of another.
        """
        for score in self.scores:
            started: set[TrialId] = set()
            ended: set[TrialId] = set()
            failed: set[TrialId] = set()
            for batch in self.batches(score):
                stopped = set(batch.stop)
                assert stopped <= started - ended
                ended |= stopped
                replaced = {one.trial for one in batch.run if one.donor is not None} & failed
                assert self.algorithm.replaces_failed or not replaced
                ended |= failed - replaced
                assert not {one.trial for one in batch.run} & ended
                failed = {one.trial for one in batch.run if _failure(score(one)) is not None}
                for one in batch.run:
                    started.add(one.trial)
                    if one.until == one.config["passes"]:
                        ended.add(one.trial)
            assert ended | failed == started

    def test_it_spends_no_more_than_it_says(self) -> None:
        """An algorithm that stops trials may spend more than expected, but not more than all."""
        arm = self.arm
        most = self.algorithm.trials_per_seed(arm.space) * arm.config.passes
        expected = self.algorithm.expected_passes(arm)
        assert 0 < expected <= most
        for score in self.scores:
            found = self.batches(score)
            spent = sum(one.until - one.start for batch in found for one in batch.run)
            assert spent <= (most if any(batch.stop for batch in found) else expected)

    def test_more_trials_leave_the_first_ones_alone(self) -> None:
        """If it says so; then a run can be extended."""
        count = self.algorithm.trials_per_seed(self.arm.space)
        more = self.algorithm.with_trials(2 * count)
        if not self.algorithm.keeps_first_trials or more == self.algorithm:
            return
        for score in self.scores:
            few, many = (
                [
                    {one for one in batch.stop if one.index < count}
                    | {f"{one}" for one in batch.run if one.trial.index < count}
                    for batch in self.batches(score, algorithm=algorithm)
                ]
                for algorithm in (self.algorithm, more)
            )
            assert set().union(*few) == set().union(*many)

    def test_trials_can_be_set(self) -> None:
        before = self.algorithm.trials_per_seed(self.arm.space)
        changed = self.algorithm.with_trials(before + 1)
        assert type(changed) is type(self.algorithm)
        assert changed.trials_per_seed(self.arm.space) in {before, before + 1}
