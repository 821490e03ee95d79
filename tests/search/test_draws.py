"""Points that are tried first, and constraints, under every algorithm that draws."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import Metric, lookup
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.algorithms.base import GridSearch, Proposals, RandomSearch, draw, whole_trial
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.segment import Batch, Result
from tuneparts.search.space import Choice, Int, Uniform
from tuneparts.search.spec import Search
from tuneparts.testing.null import NullConfig

SPACE = {"x": Uniform(low=0.1, high=1.0), "seconds": Choice(options=(0.0, 0.5, 2.0))}
POINTS = ({"x": 0.7, "seconds": 0.5}, {"x": 0.25})
ALGORITHMS = [
    RandomSearch(num_trials=9),
    Tpe(num_trials=7, window=3, num_startup=4),
    Asha(num_trials=9, min_steps=2, reduction=2),
    Pbt(population=9, num_rounds=4),
]


def small_x(config: NullConfig) -> bool:
    return config.x <= 0.4


def excess_of_x(config: NullConfig) -> float:
    return config.x - 0.4


def nowhere(config: NullConfig) -> bool:
    return False


def almost_nowhere(config: NullConfig) -> float:
    return config.x - 0.101


def raising(config: NullConfig) -> bool:
    return config.nothing  # type: ignore[attr-defined]


def wordy(config: NullConfig) -> str:
    return "yes"


def arm(**fields: Any) -> Arm:
    values = {"algorithm": ALGORITHMS[0], "space": SPACE, **fields}
    return Arm(name="a", config=NullConfig(steps=8, interval=2), **values)


def tried(one: Arm, seed: int = 0) -> list[dict[str, Any]]:
    """The configs of all segments that an arm runs, in order, with a made-up score."""
    asked = one.algorithm.proposals(one, seed, lookup("val/accuracy"))
    found, results = [], None
    while True:
        try:
            batch = asked.send(results)
        except StopIteration:
            return found
        found += [segment.config for segment in batch.run]
        results = {
            segment.trial: Result({"val/accuracy": segment.trial.index / 10})
            for segment in batch.run
        }


def named(value: Any) -> str:
    return getattr(value, "kind", repr(value))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=named)
def test_points_are_tried_first_by_every_algorithm(algorithm) -> None:
    first, second, third = tried(arm(algorithm=algorithm, points=POINTS))[:3]
    assert (first["x"], first["seconds"]) == (0.7, 0.5)
    assert second["x"] == 0.25
    assert second["seconds"] in (0.0, 0.5, 2.0)
    assert third["x"] not in (0.7, 0.25)


def test_draws_after_the_points_are_what_they_were_without() -> None:
    with_points, without = arm(points=POINTS), arm()
    for index in range(2, 6):
        assert draw(with_points, 3, index) == draw(without, 3, index)
    rng = numpy_generator(3, "space", "a", 4)
    assert draw(without, 3, 4) == {path: dim.sample(rng) for path, dim in SPACE.items()}


@pytest.mark.parametrize("constraint", [small_x, excess_of_x], ids=["bool", "number"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=named)
def test_every_trial_is_allowed_and_again_the_same(algorithm, constraint: Callable) -> None:
    one = arm(algorithm=algorithm, constraint=constraint)
    found = tried(one)
    assert all(config["x"] <= 0.4 for config in found)
    assert len({config["x"] for config in found}) > 5
    assert tried(one) == found


def test_a_sampler_that_proposes_nothing_allowed_falls_back_to_draws(monkeypatch) -> None:
    monkeypatch.setattr("tuneparts.search.algorithms.sampler._MOST_ASKED", 0)
    one = arm(algorithm=Tpe(num_trials=5), constraint=small_x)
    found = [config["x"] for config in tried(one)]
    assert len(set(found)) == 5
    assert max(found) <= 0.4
    assert [config["x"] for config in tried(one)] == found


class Careless(RandomSearch):
    """Draws without a look at the constraint."""

    takes_points = False

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> Proposals:
        yield Batch((whole_trial(arm, seed=seed, index=0, values={"x": 0.9, "seconds": 0.0}),))


def test_an_algorithm_of_ones_own_cannot_pass_by_points_or_constraints() -> None:
    with pytest.raises(ValueError, match="draws none; leave them out"):
        arm(algorithm=Careless(num_trials=1), points=POINTS)
    with pytest.raises(ConfigError, match="constraint of `a` does not allow"):
        tried(arm(algorithm=Careless(num_trials=1), constraint=small_x))


def test_grid_search_leaves_out_what_is_not_allowed() -> None:
    space = {"x": Uniform(low=0.1, high=0.7, step=0.1), "seconds": Choice(options=(0.0, 0.5))}
    one = arm(algorithm=GridSearch(), space=space, constraint=small_x)
    assert one.trials_per_seed == len(tried(one)) == 8
    assert one.cost.expected == 64


def test_points_and_constraints_travel_with_the_search_and_change_its_digest(null_search) -> None:
    search = null_search(arm(points=POINTS[1:], constraint=small_x))
    assert search.arms[0].constraint == "tests.search.test_draws:small_x"
    again = parse(Search, json.loads(search.model_dump_json()))
    assert again == search
    digests = {
        null_search(one).digest
        for one in (arm(), arm(points=POINTS), arm(constraint=small_x), arm(data={"num_train": 5}))
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("fields", "law"),
    [
        ({"points": [{"x": 5.0}]}, r"arms\['a'\].points\[0\]\['x'\] = 5.0: outside of Uniform"),
        (
            {"points": [{"x": 0.5}, {"y": 0.5}]},
            r"arms\['a'\].points\[1\]\['y'\]: no such dimension. Use one of: x, seconds",
        ),
        ({"points": [{"x": float("nan")}]}, "finite"),
        ({"points": POINTS, "algorithm": GridSearch()}, "draws none; leave them out"),
        ({"points": POINTS[:1], "constraint": small_x}, "small_x` does not allow it"),
        (
            {"constraint": nowhere},
            r"arms\['a'\].constraint = .*nowhere: allows none of 1,000 draws",
        ),
        ({"constraint": raising}, r"raised AttributeError.* Let it return False"),
        ({"constraint": wordy}, "wordy: returned 'yes'. .* at most 0 there"),
        ({"constraint": "tests.search.test_draws:SPACE"}, "not a function of a config"),
        ({"algorithm": {"kind": "fixed"}, "space": {}, "points": POINTS}, "but no space"),
        ({"space": {"interval": Int(low=0, high=100_000)}}, "greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    null_search, fields, law: str
) -> None:
    with pytest.raises(ValueError, match=law):
        null_search(arm(**fields))


def test_a_rare_allowed_draw_is_found_and_none_at_all_is_said(null_search, monkeypatch) -> None:
    monkeypatch.setattr("tuneparts.search.arm._TRIED", 20_000)
    one = arm(constraint=almost_nowhere, algorithm=RandomSearch(num_trials=1))
    null_search(one)
    assert draw(one, 0, 0)["x"] <= 0.101
    monkeypatch.setattr("tuneparts.search.arm._MOST_DRAWS", 3)
    with pytest.raises(ConfigError, match="none of 3 draws"):
        draw(one, 0, 1)
