"""The searches about sharing weights compare like with like."""

import pytest

from studies.sharing import EPOCH, Sharing
from tuneparts.search.load import load
from tuneparts.search.spec import Scale

NAMES = (
    "superweights_anytime",
    "superweights_budget",
    "superweights_ensembles",
    "superweights_families",
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
        assert {arm.config.passes for arm in search.arms} == {search.passes}
        assert len({arm.config.optimiser for arm in search.arms}) == 1


def test_paper_scale_is_the_published_one() -> None:
    setting = Sharing(scale=Scale.PAPER, small_lr=0.03)
    fields = setting.training(epochs=10, milestones=(0.5,), cutout=True)
    assert fields["optimiser"]["lr"] == 0.1
    assert fields["passes"] == 10 * EPOCH == setting.passes(10)
    assert fields["optimiser"]["milestones"] == (0.5,)
    assert fields["augmentation"].cutout == 16
    assert fields["train_on"] == "all"
    assert setting.training(holds_out=True)["train_on"] == "train"
    assert setting.training()["augmentation"].cutout == 0
    assert setting.stages(epochs=100) == {"search": 0.2, "untie": 0.1, "analysis": 0.01}
    assert "untie" not in setting.stages(unties=False)


def test_smaller_scales_are_short_and_keep_validation_data() -> None:
    setting = Sharing(scale=Scale.CPU, cpu_passes=200, small_lr=0.03)
    fields = setting.training(epochs=10, milestones=(0.5,), cutout=True)
    assert fields["optimiser"]["lr"] == 0.03
    assert (fields["passes"], fields["interval"]) == (200, 50)
    assert fields["optimiser"]["schedule"] == "cosine"
    assert fields["augmentation"].cutout == 0
    assert fields["train_on"] == "train"
