import json

import pytest
from pydantic import ValidationError

from tuneparts.core.config import parse
from tuneparts.search.algorithms.base import GridSearch, RandomSearch
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search


def test_a_search_survives_json_with_its_digest(null_search, null_arm) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=3)),
        null_arm("again", hypers_from="random"),
    )
    back = parse(Search, json.loads(search.model_dump_json()))
    assert back == search
    assert back.digest == search.digest


def test_the_digest_changes_with_anything_that_could_change_a_number(null_search, null_arm) -> None:
    base = null_search(null_arm("a"))
    others = [
        null_search(null_arm("a"), seeds=(1,)),
        null_search(null_arm("b")),
        null_search(null_arm("a", config={"x": 0.51})),
        null_search(null_arm("a"), metric="val/nll"),
        null_search(null_arm("a"), data=base.data.replaced({"seed": 1})),
    ]
    assert len({search.digest for search in [base, *others]}) == len(others) + 1


def test_selection_on_test_data_is_refused(null_search, null_arm) -> None:
    with pytest.raises(ValueError, match="held-out validation data"):
        null_search(null_arm("a"), metric="test/accuracy")


def test_unequal_budgets_need_a_reason(null_search, null_arm) -> None:
    with pytest.raises(
        ValueError,
        match=r"arms\['a'\].config.steps = 8: other trials spend 10",
    ):
        null_search(null_arm("a"), steps=10)
    noted = null_arm("a", budget_note="the point of the search")
    assert null_search(noted, steps=10).arms[0].budget_note


def test_arms_that_cannot_be_meant_are_refused(null_search, null_arm) -> None:
    a, b = null_arm("a"), null_arm("b", hypers_from="a")
    with pytest.raises(ValueError, match="give each another name"):
        null_search(a, a)
    with pytest.raises(
        ValueError, match=r"\['b'\].hypers_from = 'a': must be an arm before it \(none\)"
    ):
        null_search(b, a)
    with pytest.raises(ValueError, match=r"seeds \[5\] are not among those of that arm"):
        null_search(a, b.replaced({"seeds": (5,)}))
    for seeds in ((), (0, 0)):
        with pytest.raises(ValueError, match="at least one seed, and each seed once"):
            null_search(a.replaced({"seeds": seeds}))
    with pytest.raises(ValueError, match="has a space exactly when"):
        null_arm("c", space={"x": Uniform(low=0, high=1)})
    with pytest.raises(ValueError, match="cannot search itself"):
        null_arm("c", algorithm=RandomSearch(num_trials=2), hypers_from="a")
    with pytest.raises(ValueError, match="pattern"):
        null_arm("../escape")


def test_a_space_must_fit_the_config(null_search, null_arm) -> None:
    space = {"wrong": Uniform(0, 1)}
    arm = null_arm("a", algorithm=RandomSearch(2), space=space)
    with pytest.raises(ValueError, match=r"arms\['a'\].space\['wrong'\]: no such field of Faulty"):
        null_search(arm)
    grid = null_arm("a", algorithm=GridSearch(), space={"x": Uniform(0, 1)})
    with pytest.raises(ValueError, match=r"arms\['a'\].space\['x'\]: .* needs a Choice"):
        null_search(grid)


def test_rungs_and_rounds_are_whole_intervals(null_search, null_arm) -> None:
    for kind in (Asha, SuccessiveHalving, Hyperband):
        arm = null_arm("a", algorithm=kind(num_trials=3, min_steps=3))
        with pytest.raises(ValueError, match=r"min_steps % interval == 0"):
            null_search(arm)
    population = null_arm("a", algorithm=Pbt(population=4, num_rounds=3))
    with pytest.raises(ValueError, match=r"whole number of intervals"):
        null_search(population)


def test_scales_pick(null_search) -> None:
    assert Scale("cpu").pick(smoke=1, cpu=2, paper=3) == 2


@pytest.mark.parametrize("gpus", [1.5, 2])
def test_a_trial_runs_on_one_gpu_or_a_share_of_one(null_arm, gpus: float) -> None:
    for fits in (0, 0.25, 1):
        null_arm("a", resources={"gpus": fits})
    with pytest.raises(ValidationError, match=f"gpus = {gpus:g}: a trial runs on one GPU or a"):
        null_arm("a", resources={"gpus": gpus})


def test_a_question_gives_the_terminal_no_orders(null_search, null_arm) -> None:
    with pytest.raises(ValueError, match=r"plain text, but got `Why\\x1b\[2J\?`"):
        null_search(null_arm("a"), question="Why\x1b[2J?")
    assert null_search(null_arm("a"), notes="Two\nlines,\tand a tab.").notes
