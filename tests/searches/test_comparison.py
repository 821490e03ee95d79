"""The arms of the comparison are fair to each other."""

import math
from pathlib import Path

import pytest

import tuneparts as tp
from studies import reach
from studies.comparison import Comparison, space
from tuneparts import Scale
from tuneparts.search.load import load

SEARCHES = Path(__file__).parents[2] / "searches"
NAMES = (
    "random_vs_partitioned",
    "random_vs_partitioned_mnist",
    "invariances",
    "validation_finetune",
)


@pytest.fixture(scope="module")
def comparison():
    shared = {"steps": 400, "interval": 40, "net": tp.nets.DigitsCnn(), "batch_size": 20}
    shared["optimiser"] = tp.Adam(lr=0.01)
    return Comparison(shared=shared, samples={"samples": 2, "eval_samples": 4})


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_every_arm_has_the_same_net_batches_and_steps(name, scale):
    search = load(name, scale=scale)
    assert search.name == name
    assert len({arm.config.net for arm in search.arms}) == 1
    assert len({arm.config.batch_size for arm in search.arms}) == 1
    assert {arm.config.steps for arm in search.arms} == {search.steps}
    assert not any(arm.budget_note for arm in search.arms)


@pytest.mark.parametrize("name", NAMES[:3])
def test_only_arms_that_search_leave_the_validation_data_out(name):
    for arm in load(name).arms:
        is_search = arm.algorithm.kind != "fixed"
        assert arm.config.train_on == ("train" if is_search else "all"), arm.name


def test_every_learner_can_travel_as_far(comparison):
    configs = comparison.learners()
    assert {round(reach.reach(config), 6) for config in configs.values()} == {18.0}
    assert configs["validation_finetuned"].hyper_lr > configs["validation"].hyper_lr


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_reach_is_said_in_the_notes(name):
    search = load(name)
    assert "Reach (hyper rate times hyper steps): partitioned, " in search.notes
    assert "laplace, last_layer 18." in search.notes


@pytest.mark.parametrize("name", NAMES[1:3])
def test_rates_are_as_printed_at_paper_scale(name):
    search = load(name, scale=Scale.PAPER)
    rates = {arm.name: getattr(arm.config, "hyper_lr", None) for arm in search.arms}
    assert rates["partitioned"] == rates["validation"] == 1e-3
    assert rates["augerino"] == 0.05
    assert "partitioned, validation 30" in search.notes


def test_all_learners_start_at_the_same_ranges_and_end_alike(comparison):
    configs = comparison.learners()
    assert len({config.hypers for config in configs.values()}) == 1
    assert set(configs["augerino"].hypers.affine.model_dump(exclude={"kind"}).values()) == {0.3}
    release, finetune = configs["released"].finetune, configs["validation_finetuned"].finetune
    assert release == finetune
    assert release.optimiser.lr_at(0) == 0.005
    assert release.optimiser.lr_at(1) == 0


@pytest.mark.parametrize("largest", [0.5, 3.0])
def test_the_space_has_six_ranges(largest):
    highs = {path.rpartition(".")[2]: dim.high for path, dim in space(largest).items()}
    assert highs.pop("rotation") == math.pi
    assert list(highs.values()) == [largest] * 5


def test_the_oracle_knows_the_rotation_and_nothing_else(comparison):
    none, oracle = comparison.references().values()
    assert none.hypers.affine is None
    ranges = oracle.hypers.affine.model_dump(exclude={"kind"})
    assert ranges.pop("rotation") == math.pi
    assert not any(ranges.values())


def test_searching_arms_have_as_many_replicates_as_the_others(comparison):
    assert all(arm.seeds is None for arm in comparison.searches(Scale.SMOKE).values())
    (name, config), *others = comparison.retrained(["tpe"]).items()
    assert (name, config.hypers_from, others) == ("retrained_tpe", "tpe", [])


@pytest.mark.parametrize("scale", ["cpu", pytest.param("paper", marks=pytest.mark.slow)])
def test_no_shipped_search_leaves_an_arm_with_fewer_replicates(scale):
    for file in sorted(SEARCHES.glob("*.py")):
        search = load(file.stem, scale=scale)
        counts = {arm.name: len(search.seeds_of(arm)) for arm in search.arms}
        assert len(set(counts.values())) == 1, (file.stem, counts)
