"""Every search algorithm against a slow and obvious version of itself."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tuneparts.core import schema
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.algorithms.base import Fixed, GridSearch, RandomSearch
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.cleaning import States
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Choice, Uniform
from tuneparts.testing import AlgorithmContract

ACCURACY, NLL = schema.lookup("val/accuracy"), schema.lookup("val/nll")
SPACE = {"x": Uniform(low=0.1, high=1.0, log=True), "seconds": Choice(options=(0.0, 0.5, 2.0))}
STEPS = 8
"""The budget of `null_arm`."""

Score = Callable[[Segment], float | None]


def batches(arm: Arm, score: Score, *, seed: int = 0, metric: schema.Metric = ACCURACY) -> list:
    """All batches of a replicate when each segment ends with this score, or fails: None."""
    return batches_of_results(arm, lambda one: result(score(one), metric), seed, metric)


def batches_of_results(
    arm: Arm, outcome: Callable[[Segment], Result], seed: int = 0, metric: schema.Metric = ACCURACY
) -> list[Batch]:
    replicate = Replicate(arm, seed, States(metric))
    replicate.proposals = arm.algorithm.proposals(arm, seed, metric)
    found: list[Batch] = []
    results: Any = None
    while True:
        try:
            found.append(replicate.check(replicate.proposals.send(results)))
        except StopIteration:
            return found
        replicate.begin(found[-1])
        for one in list(replicate.running.values()):
            replicate.end(one, outcome(one))
        results = replicate.next_news().results


def result(score: float | None, metric: schema.Metric) -> Result:
    return Result({}, "boom") if score is None else Result({metric.name: score})


def rounds(found: list[Batch]) -> list[Batch]:
    """The same work as if there were a barrier after each round."""
    run = sorted((one for b in found for one in b.run), key=lambda one: (one.round, one.trial))
    last = {one.trial: one.round for one in run}
    stop = sorted(trial for b in found for trial in b.stop)
    return [
        Batch(tuple(own), tuple(trial for trial in stop if last[trial] == number - 1))
        for number, own in itertools.groupby(run, key=lambda one: one.round)
    ]


def index(one: Segment) -> int:
    return one.trial.index


def values(one: Segment) -> dict[str, Any]:
    return {path: one.config[path] for path in SPACE}


def scrambled(one: Segment) -> float:
    """A score without order or ties, another one at each budget."""
    return math.sin(37 * index(one) + 11 * one.until + 1)


def with_failures(one: Segment) -> float | None:
    return None if index(one) % 4 == 2 else scrambled(one)


def test_a_fixed_arm_is_one_whole_trial_at_its_own_config(null_arm) -> None:
    arm = null_arm("fixed", config={"x": 0.25})
    (batch,) = batches(arm, scrambled, seed=3)
    (one,) = batch.run
    assert (one.trial.arm, one.trial.seed, one.trial.index) == ("fixed", 3, 0)
    assert one.config == arm.config.model_dump(mode="json")
    assert (one.start, one.until, one.round, one.donor) == (0, STEPS, 0, None)
    assert batch.stop == ()


@pytest.mark.parametrize("seed", [0, 7])
def test_random_search_draws_each_trial_from_a_stream_of_its_own(null_arm, seed: int) -> None:
    arm = null_arm("random", algorithm=RandomSearch(num_trials=9), space=SPACE)
    (batch,) = batches(arm, scrambled, seed=seed)
    expected = []
    for number in range(9):
        rng = numpy_generator(seed, "space", "random", number)
        log_x = rng.uniform(math.log(0.1), math.log(1.0))
        expected.append({"x": math.exp(log_x), "seconds": (0.0, 0.5, 2.0)[rng.integers(3)]})
    assert [values(one) for one in batch.run] == expected
    assert [index(one) for one in batch.run] == list(range(9))
    assert {(one.start, one.until) for one in batch.run} == {(0, STEPS)}


def test_grid_search_is_nested_loops_in_the_order_of_the_space(null_arm) -> None:
    space = {"x": Choice(options=(0.1, 0.2)), "seconds": Choice(options=(0.0, 0.5, 2.0))}
    arm = null_arm("grid", algorithm=GridSearch(), space=space)
    (batch,) = batches(arm, scrambled)
    expected = []
    for x in (0.1, 0.2):
        for seconds in (0.0, 0.5, 2.0):
            expected.append({"x": x, "seconds": seconds})
    assert [values(one) for one in batch.run] == expected


def quantile(numbers: list[float], part: float) -> float:
    """The quantile that lies on straight lines between the sorted numbers."""
    ordered = sorted(numbers)
    place = part * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def halved(num_trials: int, levels: list[int], score: Callable[..., float | None]) -> Iterator:
    """What each rung runs and stops, decided trial by trial: (level, indices, stopped before)."""
    alive, stopped = list(range(num_trials)), []
    for level in levels:
        yield level, alive, stopped
        scores = {number: score(number, level) for number in alive}
        seen: list[float] = []
        going, stopped = [], []
        for number, reward in scores.items():
            if reward is None:
                continue
            # Reduction 2: better than half of the trials of this rung that came before.
            (going if not seen or reward >= quantile(seen, 1 / 2) else stopped).append(number)
            seen.append(reward)
        alive = going


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
@pytest.mark.parametrize("score", [scrambled, with_failures])
def test_asha_is_successive_halving_in_trial_order(null_arm, metric, score: Score) -> None:
    algorithm = Asha(num_trials=16, min_steps=2, reduction=2)
    arm = null_arm("asha", algorithm=algorithm, space=SPACE)
    sign = 1 if metric is ACCURACY else -1

    def reward(number: int, level: int) -> float | None:
        one = Segment(trial=drawn[number].trial, config={}, until=level)
        found = score(one)
        return None if found is None else sign * found

    found = rounds(batches(arm, score, metric=metric))
    drawn = {index(one): one for one in found[0].run}
    expected = list(halved(16, [2, 4, 8], reward))
    assert len(found) == len(expected)
    for number, (batch, (level, alive, stopped)) in enumerate(zip(found, expected, strict=True)):
        assert [index(one) for one in batch.run] == alive
        assert [trial.index for trial in batch.stop] == stopped
        assert {(one.round, one.start, one.until) for one in batch.run} == {
            (number, [0, 2, 4][number], level)
        }
        # A trial keeps the values that it was drawn with, and its own weights.
        assert all(one.config == drawn[index(one)].config for one in batch.run)
        assert all(one.donor is None for one in batch.run)
    assert 0 < len(found[-1].run) < len(found[0].run)


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
@pytest.mark.parametrize("score", [scrambled, with_failures])
def test_pbt_copies_the_best_over_the_worst_after_each_round(null_arm, metric, score) -> None:
    algorithm = Pbt(population=8, num_rounds=4, quantile=0.25, resample=0.0)
    arm = null_arm("pbt", algorithm=algorithm, space={"x": SPACE["x"]})
    found = batches(arm, score, metric=metric)
    assert [{(one.start, one.until) for one in batch.run} for batch in found] == [
        {(0, 2)}, {(2, 4)}, {(4, 6)}, {(6, 8)},
    ]  # fmt: skip
    for before, after in itertools.pairwise(found):
        x = {index(one): one.config["x"] for one in before.run}
        scores = {index(one): score(one) for one in before.run}
        ranked = sorted(
            (number for number, value in scores.items() if value is not None),
            key=lambda number: (-scores[number] if metric is ACCURACY else scores[number], number),
        )
        failed = [number for number, value in scores.items() if value is None]
        best, worst = ranked[:2], [*(ranked + failed)[-2:], *failed]  # who failed goes on as a copy
        assert [index(one) for one in after.run] == sorted([*ranked, *failed])
        for one in after.run:
            if index(one) not in worst:
                assert one.donor is None
                assert one.config["x"] == x[index(one)]
                continue
            assert one.donor is not None
            assert one.donor.index in best
            near = [x[one.donor.index] * factor for factor in (0.8, 1.2)]
            assert one.config["x"] in [min(max(value, 0.1), 1.0) for value in near]


def test_pbt_draws_some_values_anew_when_it_explores(null_arm) -> None:
    algorithm = Pbt(population=8, num_rounds=4, quantile=0.25, resample=1.0)
    arm = null_arm("pbt", algorithm=algorithm, space={"x": SPACE["x"]})
    found = batches(arm, scrambled)
    drawn = [one.config["x"] for batch in found[1:] for one in batch.run if one.donor is not None]
    rng = [numpy_generator(0, "explore", "pbt", number) for number in range(3)]
    expected = []
    for stream in rng:
        for _ in range(2):
            stream.random()  # whether to draw anew: always
            expected.append(math.exp(stream.uniform(math.log(0.1), math.log(1.0))))
    assert drawn == expected


@pytest.mark.parametrize(
    "algorithm",
    [
        RandomSearch(num_trials=6),
        Tpe(num_trials=6, window=2, num_startup=2),
        Asha(num_trials=6, min_steps=2, reduction=2),
        Pbt(population=6, num_rounds=2),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_a_replicate_repeats_itself_and_another_seed_differs(null_arm, algorithm) -> None:
    arm = null_arm("arm", algorithm=algorithm, space=SPACE)
    first, again, other = (batches(arm, scrambled, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert [values(one) for one in other[0].run] != [values(one) for one in first[0].run]


def with_nan(one: Segment) -> float:
    return math.nan if index(one) in {0, 5} else scrambled(one)


def without_metric(one: Segment) -> Result:
    """Trials 0 and 5 do not report the metric at all."""
    return Result({}) if index(one) in {0, 5} else Result({ACCURACY.name: scrambled(one)})


@pytest.mark.parametrize(
    "algorithm",
    [
        Tpe(num_trials=6, window=2, num_startup=2),
        Asha(num_trials=6, min_steps=2, reduction=2),
        Pbt(population=6, num_rounds=4),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_a_metric_that_is_not_reported_is_a_score_that_is_not_finite(null_arm, algorithm) -> None:
    arm = null_arm("arm", algorithm=algorithm, space=SPACE)
    assert batches_of_results(arm, without_metric) == batches(arm, with_nan)


class TestGridSearch(AlgorithmContract):
    algorithm = GridSearch()
    space = {  # noqa: RUF012
        "x": Choice(options=(0.1, 0.2, 0.3)),
        "seconds": Choice(options=(0.0, 0.5)),
    }


CONTRACTS = {
    "Fixed": Fixed(),
    "Random": RandomSearch(num_trials=7),
    "Tpe": Tpe(num_trials=11, window=3, num_startup=4),
    "AsynchronousTpe": Tpe(num_trials=11, window=3, num_startup=4, timing="asynchronous"),
    "Asha": Asha(num_trials=13, min_steps=2, reduction=2),
    "AsynchronousAsha": Asha(num_trials=13, min_steps=2, reduction=2, timing="asynchronous"),
    "Halving": SuccessiveHalving(num_trials=13, min_steps=2, reduction=2),
    "Hyperband": Hyperband(num_trials=23, min_steps=2, reduction=2),
    "SmallHyperband": Hyperband(num_trials=2, min_steps=2, reduction=2),
    "Pbt": Pbt(population=7, num_rounds=4),
}
for _name, _algorithm in CONTRACTS.items():
    _fields = {"algorithm": _algorithm, "__module__": __name__}
    globals()[f"Test{_name}"] = type(f"Test{_name}", (AlgorithmContract,), _fields)
    if _name in ("Asha", "Halving", "Pbt"):  # the ones that rank
        _fields = {**_fields, "metric": "val/nll"}
        globals()[f"Test{_name}ByLoss"] = type(f"Test{_name}ByLoss", (AlgorithmContract,), _fields)
