import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.hypers import (
    Affine,
    BentonAffine,
    Colour,
    Dropout,
    Flip,
    Hyper,
    Hypers,
    Mask,
    Noise,
    SchwoebelAffine,
    Temperature,
    Theta,
)
from tuneparts.hypers.config import OUTSIDE_LIKELIHOOD
from tuneparts.methods.baselines.config import Standard


def test_all_parts_are_absent_by_default():
    config = Hypers()
    assert config.model_dump(exclude_none=True) == {
        "samples": 1,
        "averaging": "logits",
        "frozen": (),
    }


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"rotation": 1.0}, Affine),
        ({"kind": "lila"}, Affine),
        ({"kind": "benton", "stretch": 0.3}, BentonAffine),
        ({"kind": "schwoebel", "theta_max": {"rotation": 1.0}}, SchwoebelAffine),
        (BentonAffine(), BentonAffine),
    ],
)
def test_the_affine_kind_is_named_or_lila(given, kind):
    assert type(Hypers(affine=given).affine) is kind


def test_an_unknown_affine_kind_names_the_known():
    with pytest.raises(ConfigError, match=r"`affine\.kind` = 'stn': must be one of 'lila'"):
        parse(Hypers, {"affine": {"kind": "stn"}})


def test_a_field_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="`stretch` is not a field of Affine"):
        parse(Hypers, {"affine": {"stretch": 0.3}})


def test_survives_json():
    config = Hypers(
        affine=SchwoebelAffine(), mask={"keep": (0.1, 0.9)}, dropout={"rate": 0.3}, noise=0.1
    )
    assert Hypers.model_validate_json(config.model_dump_json()) == config


class PriorShift(Hyper):
    def on_outputs(self, logits, now):
        return logits


@pytest.mark.parametrize(
    ("given", "names", "samples"),
    [
        (Affine(), ["affine"], 4),
        ([SchwoebelAffine(), Temperature(value=2.0)], ["affine", "temperature"], 4),
        ((Colour(), Noise(), Mask(keep=(0.5,))), ["colour", "noise", "mask"], 4),
        (Dropout(), ["dropout"], 4),
        (Temperature(), ["temperature"], 1),
        (PriorShift(), ["prior_shift"], 1),
        ([PriorShift(), Flip()], ["prior_shift", "flip"], 4),
        ([], [], 1),
    ],
)
def test_hypers_may_be_given_alone_or_in_a_list(given, names, samples):
    """Under their usual names; predictions are averaged over 4 samples where some are random."""
    hypers = Standard(hypers=given).hypers
    assert sorted(hypers.parts) == sorted(names)
    assert hypers.samples == samples
    assert hypers.eval_samples == (4 if samples == 4 else None)
    one_by_one = given if isinstance(given, list | tuple) else [given]
    assert hypers == Hypers(
        **dict(zip(names, one_by_one, strict=True)),
        **({"samples": 4, "eval_samples": 4} if samples == 4 else {}),
    )
    assert Hypers.model_validate_json(hypers.model_dump_json()) == hypers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([Noise(), Noise(std=0.2)], "^hypers: `noise` is there twice"),
        ([Affine(), BentonAffine()], "`affine` is there twice"),
        ([PriorShift(), PriorShift()], r"`prior_shift` is there twice: use `Hypers\(a=\.\.\., b"),
        ([Affine], "class.*Affine'>: no hyperparameter. Write it as"),
        ([3], "3: no hyperparameter"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(Standard, {"hypers": given})


def test_images_only_parts_refuse_vectors():
    for part in ({"affine": {}}, {"colour": {}}):
        with pytest.raises(ConfigError, match=r"acts on images \(C, H, W\)"):
            Hypers(**part).build(learnable=True, net=nn.Linear(3, 2), in_shape=(3,))


def test_only_parts_that_are_there_can_be_frozen():
    with pytest.raises(ConfigError, match="names `noise`"):
        parse(Hypers, {"frozen": ["noise"]})
    with pytest.raises(ConfigError, match="frozen"):
        parse(Hypers, {"frozen": ["weight_decay"]})


def test_the_order_of_frozen_parts_does_not_matter():
    values = {"noise": 0.1, "temperature": 2.0}
    assert Hypers(**values, frozen=("temperature", "noise")) == Hypers(
        **values, frozen=("noise", "temperature")
    )


NOT_MOVED = dict.fromkeys(
    ("rotation", "translate_x", "translate_y", "scale_x", "scale_y", "shear"), 0.0
)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 2))


def reported(config: Hypers, in_shape: tuple[int, ...], *, learnable: bool):
    hypers = config.build(learnable=learnable, net=net(), in_shape=in_shape)
    return {name.removeprefix("hyper/"): value for name, value in hypers.values().items()}


@pytest.mark.parametrize("learnable", [True, False])
@pytest.mark.parametrize(
    ("config", "in_shape"),
    [
        (Hypers(affine={"rotation": 2.0}, colour={"contrast": 0.2}), (1, 2, 2)),
        (Hypers(affine={"kind": "benton", "stretch": 0.3}, noise=0.1), (1, 2, 2)),
        (Hypers(affine={"kind": "schwoebel"}, temperature=2.0), (1, 2, 2)),
        (Hypers(mask={"keep": (0.2, 0.9, 0.6, 0.4)}, dropout={"rate": 0.3}), (4,)),
    ],
)
def test_what_one_run_reports_another_holds(config, in_shape, learnable):
    """From nothing: the parts are made as they were found."""
    found = reported(config, in_shape, learnable=learnable)
    assert reported(Hypers().at(found), in_shape, learnable=False) == pytest.approx(found)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(NOT_MOVED)), st.floats(0, 3), min_size=1, max_size=6))
def test_a_part_that_is_made_has_no_effect_besides_what_was_found(found):
    assert Hypers().at(found).affine == Affine(**(NOT_MOVED | found))


def test_a_part_that_is_there_keeps_its_other_values():
    config = Hypers(affine={"shear": 0.7}, colour={"contrast": 0.4}, samples=20)
    at = config.at({"rotation": 2.5, "brightness": 0.3})
    assert at.affine == Affine(shear=0.7, rotation=2.5)
    assert at.colour is not None
    assert (at.colour.brightness, at.colour.contrast) == (0.3, 0.4)
    assert at.samples == 20


def test_schwoebel_ends_are_set_one_by_one():
    ends = SchwoebelAffine(theta_max=Theta(rotation=1.0))
    at = Hypers(affine=ends).at({"theta_min.rotation": -2.0})
    assert at.affine == SchwoebelAffine(
        theta_min=ends.theta_min.replaced({"rotation": -2.0}), theta_max=ends.theta_max
    )
    fresh = Hypers().at({"theta_max.scale_x": 1.5})
    assert fresh.affine == SchwoebelAffine(theta_min=Theta(), theta_max=Theta(scale_x=1.5))


def test_names_of_another_parametrisation_are_refused():
    with pytest.raises(UnknownNameError, match="hyperparameter of Affine"):
        Hypers(affine=Affine()).at({"stretch": 0.1})
    with pytest.raises(UnknownNameError, match="hyperparameter of BentonAffine"):
        Hypers(affine=BentonAffine()).at({"scale_x": 0.1})


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean `rotation`"):
        Hypers().at({"rotations": 1.0})
    with pytest.raises(UnknownNameError, match="not a known hyperparameter"):
        Hypers().at({"dropout.first": 0.1})


def test_gaps_in_numbered_values_are_refused():
    with pytest.raises(ConfigError, match=r"`dropout.1` is missing"):
        Hypers().at({"dropout.0": 0.1, "dropout.2": 0.1})


def test_more_than_ten_numbered_values_keep_their_order():
    found = {f"keep.{i}": i / 20 for i in reversed(range(12))}
    mask = Hypers().at(found).mask
    assert mask is not None
    assert mask.keep == tuple(i / 20 for i in range(12))


def test_the_count_of_kept_features_must_agree():
    keep = {"keep.0": 0.9, "keep.1": 0.1}
    assert Hypers().at(keep | {"num_kept": 1.0}) == Hypers().at(keep)
    with pytest.raises(ConfigError, match="must count"):
        Hypers().at(keep | {"num_kept": 2.0})
    with pytest.raises(ConfigError, match="came without them"):
        Hypers().at({"num_kept": 2.0})


def test_values_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="noise"):
        Hypers().at({"noise": -1.0})


@pytest.mark.parametrize("name", sorted(OUTSIDE_LIKELIHOOD))
def test_hyperparameters_outside_the_likelihood_are_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=f"`{name}` cannot be learnt here: .*exactly zero"):
        parse(Hypers, {name: 0.1})
    with pytest.raises(ConfigError, match=f"`{name}` cannot be learnt"):
        Hypers().at({name: 0.1})


def test_their_gradient_at_fixed_weights_is_indeed_nothing():
    """Label smoothing, learning rate and weight decay move the weights, not the likelihood."""
    smoothing, lr, decay = (torch.tensor(v, requires_grad=True) for v in (0.1, 0.05, 0.01))
    net = nn.Linear(3, 2)
    hypers = Hypers(temperature=1.5).build(learnable=True, net=net, in_shape=(3,))
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 3, generator=draws), torch.tensor([0, 1, 0, 1, 1, 0])

    log_prob = hypers.predict(net, x, generator=draws, training=True).log_softmax(1)
    hard = -log_prob[torch.arange(6), y].mean()
    smoothed = (1 - smoothing) * hard - smoothing * log_prob.mean()
    weight_gradient = torch.autograd.grad(smoothed, net.weight)[0]
    with torch.no_grad():  # a step is taken at fixed values: equation 4 does not look into it
        net.weight -= lr * (weight_gradient + decay * net.weight)

    loss = functional.cross_entropy(hypers.predict(net, x, generator=draws, training=True), y)
    inside, *outside = torch.autograd.grad(
        loss, [*hypers.learnable(), smoothing, lr, decay], allow_unused=True
    )
    assert inside.abs().item() > 0
    assert outside == [None, None, None]
