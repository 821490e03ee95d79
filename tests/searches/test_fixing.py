"""The searches about fixing weights compare like with like."""

import pytest

from studies.fixing import Fixing
from tuneparts import Scale
from tuneparts.results.figures import gallery
from tuneparts.search.load import load

SETTINGS = {
    "pwfn_alpha": {},
    "pwfn_baselines": {"converged": True},
    "pwfn_cifar": {"harder": True},
    "pwfn_ensembles": {"converged": True},
    "pwfn_epochs": {},
    "pwfn_grid": {"converged": True},
    "pwfn_oneshot": {"converged": True},
    "pwfn_rounds": {},
    "pwfn_tinyimagenet": {"converged": True},
}


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", SETTINGS)
def test_every_arm_has_the_same_net_batches_and_pretraining(name: str, scale: Scale) -> None:
    search = load(name, scale=scale)
    setting = Fixing(scale=scale, **SETTINGS[name])
    assert len({arm.config.net for arm in search.arms}) == 1
    assert len({arm.config.batch_size for arm in search.arms}) == 1
    assert len({arm.resources.model_dump_json() for arm in search.arms}) == 1
    for arm in search.arms:
        if hasattr(arm.config, "pretrain"):
            assert round(arm.config.pretrain * arm.config.steps) == setting.pretrain, arm.name
        else:
            assert arm.config.steps == setting.steps, arm.name
    for figure in search.figures:
        gallery._parse(figure)


@pytest.mark.parametrize("scale", list(Scale))
def test_the_net_that_is_not_fixed_trains_as_long_and_on_the_same_images(scale: Scale) -> None:
    arms = {arm.name: arm.config for arm in load("pwfn_baselines", scale=scale).arms}
    unfixed = arms.pop("float")
    assert unfixed.method == "standard"
    assert {config.augmentation for config in arms.values()} == {unfixed.augmentation}
    assert {config.steps for config in arms.values()} == {unfixed.steps}
    assert {config.optimiser for config in arms.values()} == {unfixed.optimiser}


@pytest.mark.parametrize("scale", list(Scale))
def test_published_nets_start_from_their_weights(scale: Scale) -> None:
    search = load("pwfn_imagenet", scale=scale)
    given = {arm.config.pretrained for arm in search.arms}
    if scale is not Scale.PAPER:
        assert given == {None}
        return
    names = ("resnet18", "resnet34", "resnet50", "densenet161")
    assert given == {f"torchvision:{name}" for name in names}
    assert {arm.config.net.name.removeprefix("imagenet_") for arm in search.arms} == set(names)


@pytest.mark.parametrize("scale", list(Scale))
def test_rounds_are_all_reported(scale: Scale) -> None:
    for arm in load("pwfn_rounds", scale=scale).arms:
        config = arm.config
        rounds = (config.steps - Fixing(scale=scale).pretrain) / (len(config.fractions) - 1)
        # Smoke has as many steps as rounds, and the short first round takes none.
        assert config.interval <= max(1, rounds), arm.name


@pytest.mark.parametrize("scale", list(Scale))
def test_fields_and_lengths_reach_the_config(scale: Scale) -> None:
    setting = Fixing(scale=scale, num_reports=5)
    longer = setting.config(rounds=1000, clip=0.25)
    assert longer.steps == setting.pretrain + 1000
    assert longer.interval == longer.steps // 5
    assert longer.clip == 0.25
    unfixed = setting.search("", {"float": setting.unfixed()}).arm("float").config
    assert setting.config().steps == unfixed.steps == setting.steps
