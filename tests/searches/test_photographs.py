"""The searches on photographs have the paper's settings, and only what they say differs."""

import pytest

from studies.photographs import ITERATIONS
from tuneparts.core.errors import ConfigError
from tuneparts.search.load import load


@pytest.mark.parametrize("num_train", ITERATIONS)
@pytest.mark.parametrize("rotated", [True, False])
def test_iterations_follow_from_the_number_of_images(num_train, rotated):
    changes = [f"num_train={num_train}", f"rotated={str(rotated).lower()}", "depth=14"]
    search = load("invariances_cifar", scale="paper", changes=changes)
    iterations = ITERATIONS[num_train] * (2 if rotated else 1)
    assert search.steps == 2 * iterations
    assert (search.data.num_train, search.data.rotated) == (num_train, rotated)
    config = search.arm("partitioned").config
    assert (config.net.depth, config.net.planes, config.batch_size) == (14, 16, 250)
    assert (config.optimiser.kind, config.optimiser.lr_at(0)) == ("sgd", 0.1)
    assert config.optimiser.lr_at(1) == pytest.approx(0.001)
    assert (config.hyper_lr, config.weight_decay_scaling) == (1e-3, "sqrt")
    assert (config.defaults, config.proportions) == ("initial", (0.8, 0.1, 0.1))
    assert search.arm("none_iterations").config.steps == iterations


def test_tiny_images_have_two_chunks_and_norms():
    search = load("invariances_tiny", scale="paper", changes=["num_train=100000"])
    config = search.arm("partitioned").config
    assert search.steps == 2 * 40_000
    assert (config.proportions, config.net.num_per_stage) == ((0.8, 0.2), 8)
    turned = load("invariances_tiny", scale="paper", changes=["rotated=true"])
    assert turned.steps == 2 * 120_000


def test_sizes_without_a_schedule_are_refused():
    with pytest.raises(ConfigError, match=r"`num_train` = 77: .* known for 1000, 5000"):
        load("invariances_cifar", scale="paper", changes=["num_train=77"])
    with pytest.raises(ConfigError, match="`num_trian`: neither an arm nor a field"):
        load("invariances_cifar", changes=["num_trian=1000"])
    with pytest.raises(ConfigError, match=r"`num_train` = 77: steps are known for \[312"):
        load("invariances_schwoebel", scale="paper", changes=["num_train=77"])


def test_laplace_alone_finds_its_decay():
    search = load("invariances_cifar", scale="paper")
    decays = {arm.name: arm.config.optimiser.weight_decay for arm in search.arms}
    assert decays.pop("laplace") == decays.pop("retrained_laplace") == 0
    assert set(decays.values()) == {1e-4}


def test_without_a_last_stage_the_rate_stays_at_its_end_as_long():
    search = load("validation_finetune", scale="paper")
    plain, staged = search.arm("validation_20").config, search.arm("validation_20_fast").config
    assert plain.optimiser.lr_at(0.75) == plain.optimiser.lr_at(1.0) == pytest.approx(0.001)
    assert staged.optimiser.lr_at(0.75) > 0.01
    assert staged.finetune.start(search.steps) == 0.75 * search.steps
    assert search.arm("partitioned").config.weight_decay_scaling == "sqrt"


def test_every_cell_has_its_retrained_net():
    search = load("partition_retrained", changes=["chunks=4"])
    cells = [arm.name for arm in search.arms if arm.source is None]
    assert len(cells) == 9
    assert [arm.config.hypers_from for arm in search.arms if arm.source] == cells
    config = search.arm("cell_0_2").config
    assert (config.proportions[0], config.parameter_proportions[3]) == (0.7, 0.4)
    with pytest.raises(ConfigError, match="`chunks` = 7"):
        load("partition_retrained", changes=["chunks=7"])


@pytest.mark.parametrize(
    "name", ["partition_sensitivity", "partition_defaults", "rotated_mnist", "validation_finetune"]
)
def test_the_hyper_rate_is_as_printed(name):
    configs = [arm.config for arm in load(name, scale="paper").arms]
    assert {c.hyper_lr for c in configs if hasattr(c, "hyper_lr")} == {1e-3}
