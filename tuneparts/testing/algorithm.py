"""The contract of a search algorithm."""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tuneparts.core.config import parse
from tuneparts.core.schema import selection_metric
from tuneparts.search.algorithms.base import Algorithm, Fixed, whole_trial
from tuneparts.search.arm import Arm
from tuneparts.search.cleaning import States
from tuneparts.search.events import ResultTold, TrialId
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Choice, Dimension, Uniform
from tuneparts.testing.null import NullConfig
from tuneparts.training.config import Method

Score: TypeAlias = Callable[[Segment], float | None]
"""What a segment scores; None if it fails."""
Pick: TypeAlias = Callable[[Sequence[Segment]], Segment]
"""Which of the running segments ends next."""
_KINDS = ("scrambled", "some fail", "some diverge", "all diverge", "all fail")
_MOST_BATCHES = 10_000
"""An algorithm that has asked for so many does not end."""
_FIRST, _LAST = itemgetter(0), itemgetter(-1)


def _score(kind: str, segment: Segment) -> float | None:
    index = segment.trial.index
    scrambled = math.sin(37 * index + 11 * segment.until + 1)  # no order, no ties
    if kind == "all fail" or (kind == "some fail" and index % 4 == 2):
        return None
    if kind == "all diverge" or (kind == "some diverge" and index % 3 == 0):
        return math.nan
    if kind == "some diverge" and index % 3 == 1 and segment.start:
        return math.inf
    ordered = {"rising": 1, "falling": -1}.get(kind)
    return scrambled if ordered is None else (index + segment.until / 1e6) * ordered


def _failure(score: float | None) -> str | None:
    """Why a plan takes a trial for failed: it raised, or its score is no finite number."""
    return None if score is not None and math.isfinite(score) else "boom"


def _work(batches: Sequence[Batch]) -> tuple[list[Segment], list[TrialId]]:
    """All segments and all trials that were stopped, in whichever order."""
    stop = [trial for batch in batches for trial in batch.stop]
    return sorted(_run(batches), key=lambda one: (one.trial, one.round)), sorted(stop)


def _run(batches: Sequence[Batch]) -> list[Segment]:
    return [one for batch in batches for one in batch.run]


class AlgorithmContract:
    """The laws of a search algorithm; nothing is trained.

    Inherit it in a class that pytest collects, and name the algorithm. Where its arm needs another
    config or space than those here, name these too.

    Example:
        >>> from tuneparts.search.algorithms.base import RandomSearch
        >>> class TestMine(AlgorithmContract):
        ...     algorithm = RandomSearch(num_trials=3)
        >>> TestMine().test_it_repeats_itself()
    """

    algorithm: ClassVar[Algorithm]
    config: ClassVar[Method] = NullConfig(steps=16, interval=2)
    space: ClassVar[Mapping[str, Dimension]] = {
        "x": Uniform(low=0.1, high=1.0, log=True),
        "seconds": Choice(options=(0.0, 0.5, 2.0)),
    }
    metric: ClassVar[str] = "val/accuracy"
    scores: ClassVar[tuple[Score, ...]] = tuple(partial(_score, kind) for kind in _KINDS)

    @property
    def arm(self) -> Arm:
        space = {} if isinstance(self.algorithm, Fixed) else dict(self.space)
        return Arm(name="mine", config=self.config, algorithm=self.algorithm, space=space)

    def batches(self, score: Score) -> list[Batch]:
        return self.history(score)[0]

    def history(
        self, score: Score, *, pick: Pick = _FIRST, repeat: Sequence[ResultTold] = ()
    ) -> tuple[list[Batch], list[ResultTold]]:
        """All batches, and the order of results where it matters; a journal's is repeated."""
        metric, arm = selection_metric(self.metric), self.arm
        replicate = Replicate(arm, 0, States(metric))
        replicate.proposals = arm.algorithm.proposals(arm, 0, metric)
        replicate.repeat(repeat)
        batches: list[Batch] = []
        told: list[ResultTold] = []
        results: Any = None
        while len(batches) < _MOST_BATCHES:
            try:
                batches.append(replicate.check(replicate.proposals.send(results)))
            except StopIteration:
                return batches, told
            replicate.begin(batches[-1])
            # All that a journal holds has ended when it is read again.
            while (repeat and replicate.running) or (news := replicate.next_news()) is None:
                one = pick(list(replicate.running.values()))
                value = score(one)
                row = {} if value is None else {self.metric: value}
                replicate.end(one, Result(row, _failure(value)))
            results = news.results
            if news.told is not None:
                told.append(ResultTold(news.told.trial, news.told.until, 0.0))
        raise AssertionError(f"an algorithm ends, but this one asked for {_MOST_BATCHES} batches")

    def test_it_survives_json(self) -> None:
        back = parse(Arm, json.loads(self.arm.model_dump_json()))
        assert type(back.algorithm) is type(self.algorithm)
        assert back == self.arm

    def test_it_repeats_itself(self) -> None:
        """A crashed search is resumed by running the generator against the journal again."""
        for score in self.scores:
            before = self.batches(score)
            random.seed(len(before))
            np.random.seed(len(before))
            assert self.batches(score) == before

    def test_it_does_not_matter_who_is_faster(self) -> None:
        """Unless it is asynchronous: then it goes by the order that the journal repeats."""
        for score in self.scores:
            expected = _work(self.batches(score))
            for pick in (_LAST, random.Random(1).choice, random.Random(2).choice):
                batches, told = self.history(score, pick=pick)
                assert self.algorithm.is_asynchronous or _work(batches) == expected
                again = _LAST if pick is _LAST else _FIRST
                assert self.history(score, pick=again, repeat=told)[0] == batches

    def test_it_tries_the_points_of_its_arm_first(self) -> None:
        """The first trials are at the points, in their order, unless it takes none."""
        if not self.algorithm.takes_points:
            return
        rng = np.random.default_rng(0)
        points = tuple({p: dim.sample(rng) for p, dim in self.space.items()} for _ in range(2))
        arm = parse(Arm, {**self.arm.model_dump(), "points": points})
        proposals = arm.algorithm.proposals(arm, 0, selection_metric(self.metric))
        found = {one.trial.index: one.config for one in next(proposals).run}
        for index, point in enumerate(points[: len(found)]):
            expected = whole_trial(arm, seed=0, index=index, values=point).config
            assert found[index] == expected, "make the values of a trial with `draw`"

    def test_it_leaves_global_random_numbers_alone(self) -> None:
        before = random.getstate(), str(np.random.get_state())
        self.batches(self.scores[0])
        assert (random.getstate(), str(np.random.get_state())) == before

    def test_it_runs_as_many_trials_as_it_says(self) -> None:
        trials = {one.trial for one in _run(self.batches(partial(_score, "scrambled")))}
        assert trials == {TrialId("mine", 0, index) for index in range(self.arm.trials_per_seed)}
        for score in self.scores:
            assert {one.trial for one in _run(self.batches(score))} <= trials

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
                    assert one.start < one.until <= one.config["steps"]
                    is_last = one.until == one.config["steps"]
                    assert is_last or one.until % one.config["interval"] == 0
                    if one.donor is not None:
                        assert before.get(one.donor) == (one.round - 1, one.start)
                    ends[one.trial] = one.round, one.until

    def test_every_trial_ends_once(self) -> None:
        """By failing (it may go on from another's state), by being stopped, or at its budget."""
        for score in self.scores:
            started, ended, failed = set[TrialId](), set[TrialId](), set[TrialId]()
            for batch in self.batches(score):
                assert set(batch.stop) <= started - ended
                ended |= set(batch.stop)
                replaced = {one.trial for one in batch.run if one.donor is not None} & failed
                assert self.algorithm.replaces_failed or not replaced
                failed -= replaced
                assert not {one.trial for one in batch.run} & (ended | failed)
                for one in batch.run:
                    started.add(one.trial)
                    if _failure(score(one)) is not None:
                        failed.add(one.trial)
                    elif one.until == one.config["steps"]:
                        ended.add(one.trial)
            assert ended | failed == started

    def test_it_spends_no_more_than_it_says(self) -> None:
        """What is expected is at most the most, and that is never exceeded."""
        cost = self.arm.cost
        assert 0 < cost.expected <= cost.most
        ordered: list[Score] = [partial(_score, "rising"), partial(_score, "falling")]
        for score in [*self.scores, *ordered]:
            assert sum(one.until - one.start for one in _run(self.batches(score))) <= cost.most

    def test_more_trials_leave_the_first_ones_alone(self) -> None:
        """If it says so; then a run can be extended."""
        count = self.arm.trials_per_seed
        more = self.algorithm.with_trials(2 * count)
        if not self.algorithm.keeps_first_trials or more == self.algorithm:
            return
        bigger: AlgorithmContract = type("Bigger", (type(self),), {"algorithm": more})()
        for score in self.scores:
            few, many = (
                {one for batch in batches for one in batch.stop if one.index < count}
                | {str(one) for one in _run(batches) if one.trial.index < count}
                for batches in (self.batches(score), bigger.batches(score))
            )
            assert few == many

    def test_trials_can_be_set(self) -> None:
        before = self.algorithm.trials_per_seed(self.arm.space)
        changed = self.algorithm.with_trials(before + 1)
        assert type(changed) is type(self.algorithm)
        assert changed.trials_per_seed(self.arm.space) in {before, before + 1}
