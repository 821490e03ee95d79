"""The searches about sharing weights compare like with like."""

from typing import Any

import pytest

from studies.sharing import EPOCH, Sharing
from tuneparts import Scale
from tuneparts.search.load import load

NAMES = (
    "superweights_anytime",
    "superweights_budget",
    "superweights_cifar10",
    "superweights_efficient",
    "superweights_ensembles",
    "superweights_families",
    "superweights_membership",
    "superweights_npas",
    "superweights_npas_imagenet",
    "superweights_thresholds",
)


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_every_arm_has_the_same_batches_and_resources(name: str, scale: Scale) -> None:
    search = load(name, scale=scale)
    assert len({arm.config.batch_size for arm in search.arms}) == 1
    assert len({arm.config.interval for arm in search.arms}) == 1
    assert len({arm.resources.gpus for arm in search.arms}) == 1
    if scale is not Scale.PAPER:
        assert {arm.config.steps for arm in search.arms} == {search.steps}
        assert len({arm.config.optimiser for arm in search.arms}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_notes_name_what_differs_from_the_released_code(name: str) -> None:
    notes = load(name, scale=Scale.SMOKE).notes
    assert "Teterwak et al. " in notes
    assert 'sharing.scope="released"' in notes


def test_paper_scale_is_the_published_one() -> None:
    setting = Sharing(scale=Scale.PAPER, small_lr=0.03)
    fields = setting.training(epochs=10, milestones=(0.5,), cutout=True)
    assert fields["optimiser"].lr == 0.1
    assert fields["steps"] == 10 * EPOCH == setting.steps(10)
    assert fields["optimiser"].milestones == (0.5,)
    assert fields["augmentation"]["cutout"] == 16
    assert fields["train_on"] == "all"
    assert setting.training(holds_out=True)["train_on"] == "train"
    assert setting.training()["augmentation"]["cutout"] == 0
    assert setting.stages(epochs=100) == {"search": 0.2, "untie": 0.1, "analysis": 0.01}
    assert "untie" not in setting.stages(unties=False)


def arms(name: str) -> dict[str, Any]:
    return {arm.name: arm.config for arm in load(name, scale=Scale.PAPER).arms}


@pytest.mark.parametrize(
    "name", ["superweights_ensembles", "superweights_cifar10", "superweights_efficient"]
)
def test_batch_ensemble_and_mimo_train_as_published(name: str) -> None:
    for config in (arms(name)["batch_ensemble"], arms(name)["mimo"]):
        optimiser = config.optimiser
        assert config.steps == 250 * EPOCH
        assert [optimiser.lr_at(epoch / 250) for epoch in (0, 1, 100, 200, 225)] == pytest.approx(
            [0, 0.1, 0.02, 0.004, 0.0008]
        )
        # A penalty l2 |w|^2 has the gradient 2 l2 w.
        assert (optimiser.weight_decay, optimiser.nesterov) == (2 * 3e-4, True)
    assert arms(name)["batch_ensemble"].fast_start == "normal"
    assert arms(name)["batch_ensemble"].fast_lr_factor == 0.5
    assert (arms(name)["mimo"].num_members, arms(name)["mimo"].batch_repetitions) == (3, 4)


def test_cifar_10_has_thresholds_and_corruptions_of_its_own() -> None:
    found = arms("superweights_cifar10")
    assert found["multi_width"].sharing.beta == 0.95
    assert found["multi_depth_width"].sharing.beta == found["swn_he"].sharing.beta == 0.5
    assert arms("superweights_ensembles")["swn_he"].sharing.beta == 0.9
    for name, data in (("superweights_cifar10", "cifar10"), ("superweights_ensembles", "cifar100")):
        search = load(name, scale=Scale.PAPER)
        assert (search.data.name, search.data.corrupted) == (data, "main")


def test_imagenet_has_the_printed_recipe() -> None:
    for config in arms("superweights_npas_imagenet").values():
        optimiser = config.optimiser
        assert (config.batch_size, config.label_smoothing, config.decays_norms) == (
            1024,
            0.1,
            False,
        )
        assert (optimiser.lr, optimiser.weight_decay, optimiser.nesterov) == (1.6, 1e-4, False)
        rates = [optimiser.lr_at(epoch / 90) for epoch in (0, 5, 10, 30, 60, 80)]
        assert rates == pytest.approx([0, 0.8, 1.6, 0.16, 0.016, 0.0016])


def test_membership_is_found_by_both_rules() -> None:
    found = arms("superweights_membership")
    assert [found[name].sharing.scope for name in ("published", "released")] == ["all", "released"]


def test_smaller_scales_are_short_and_keep_validation_data() -> None:
    setting = Sharing(scale=Scale.CPU, cpu_steps=200, small_lr=0.03)
    fields = setting.training(epochs=10, milestones=(0.5,), cutout=True)
    assert fields["optimiser"].lr == 0.03
    assert (fields["steps"], fields["interval"]) == (200, 50)
    assert fields["optimiser"].schedule == "cosine"
    assert fields["augmentation"] == {}
    assert fields["train_on"] == "train"
