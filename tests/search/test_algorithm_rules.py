"""The decisions of ASHA and PBT: pure functions, against Ray's own rule where it has one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.test_algorithms import ACCURACY, NLL, batches, index
from tuneparts.search.algorithms.halving import Asha, _Rung
from tuneparts.search.algorithms.pbt import _exploit
from tuneparts.search.arm import Arm
from tuneparts.search.space import Uniform
from tuneparts.testing.null import NullConfig


def promoted(scores: list[float], reduction: int, *, up: bool) -> list[bool]:
    """Which trials of a rung of `Asha` continue, given their scores in order."""
    rung = _Rung(reduction)
    return [rung([score if up else -score]) for score in scores]


def larger(a: float, b: float) -> bool:
    return a > b


def smaller(a: float, b: float) -> bool:
    return a < b


@pytest.mark.parametrize(("first", "expected"), [(10, [10, 40, 160, 400]), (400, [400])])
def test_rungs_grow_by_the_reduction_and_end_at_the_budget(first, expected) -> None:
    arm = Arm(
        name="a",
        config=NullConfig(steps=400, interval=10),
        algorithm=Asha(num_trials=2, min_steps=first, reduction=4),
        space={"x": Uniform(low=0, high=1)},
    )
    found = {one.until for batch in batches(arm, lambda _: 0.5) for one in batch.run}
    assert sorted(found) == expected


@settings(deadline=None, max_examples=60)
@given(
    scores=st.lists(st.floats(-5, 5), min_size=1, max_size=12),
    reduction=st.integers(2, 4),
    up=st.booleans(),
)
def test_promotion_equals_rays_asynchronous_rule_in_trial_order(
    scores: list[float], reduction: int, up: bool
) -> None:
    from ray.tune.schedulers.async_hyperband import _Bracket

    bracket = _Bracket(
        min_t=1, max_t=reduction, reduction_factor=reduction, s=0, stop_last_trials=False
    )
    expected = []
    for number, score in enumerate(scores):
        trial = type("Trial", (), {"trial_id": str(number)})()
        action = bracket.on_result(trial, cur_iter=1, cur_rew=score if up else -score)
        expected.append(action == "CONTINUE")
    assert promoted(scores, reduction, up=up) == expected


@pytest.mark.parametrize(
    ("better", "best", "worst"), [(larger, {2, 3}, {0, 1}), (smaller, {0, 1}, {2, 3})]
)
def test_the_worst_quantile_copies_from_the_best(better, best, worst) -> None:
    scores = {0: 0.1, 1: 0.2, 2: 0.8, 3: 0.9, 4: 0.5, 5: 0.5, 6: 0.5, 7: 0.5}
    donors = _exploit(scores, quantile=0.25, better=better, rng=np.random.default_rng(0))
    assert set(donors) == worst
    assert set(donors.values()) <= best


@pytest.mark.parametrize("metric", [ACCURACY, NLL], ids=["up", "down"])
def test_a_score_that_is_not_finite_neither_continues_nor_counts(null_arm, metric) -> None:
    scores = [np.nan, 0.3, 0.9, np.inf, 0.1, 0.95, -np.inf, 0.2]
    finite = [score for score in scores if np.isfinite(score)]
    kept = iter(promoted(finite, 2, up=metric is ACCURACY))
    expected = [i for i, score in enumerate(scores) if np.isfinite(score) and next(kept)]
    algorithm = Asha(num_trials=8, min_steps=4, reduction=2)
    arm = null_arm("a", algorithm=algorithm, space={"x": Uniform(low=0, high=1)})
    found = batches(arm, lambda one: scores[index(one)], metric=metric)
    assert sorted(index(one) for batch in found for one in batch.run if one.start) == expected


@pytest.mark.parametrize("better", [larger, smaller])
@pytest.mark.parametrize("broken", [1, 2, 5, 7, 8])
def test_all_without_a_finite_score_copy_and_none_is_copied(better, broken: int) -> None:
    bad = [np.nan, np.inf, -np.inf]
    scores = {i: bad[i % 3] if i < broken else i / 10 for i in range(8)}
    rng = np.random.default_rng(0)
    donors = _exploit(scores, quantile=0.25, better=better, rng=rng)
    if broken == 8:
        assert donors == {}
        return
    assert set(range(broken)) <= set(donors)
    assert len(donors) == max(broken, 2)
    finite = sorted(range(broken, 8), reverse=better is larger)
    assert set(donors.values()) <= set(finite[:2])
