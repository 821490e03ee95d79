import pytest
from torch import nn

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import BentonConfig, HypersConfig, LilaConfig, SchwoebelConfig


def test_all_parts_are_absent_by_default():
    config = HypersConfig()
    assert config.model_dump(exclude_none=True) == {
        "samples": 1,
        "averaging": "logits",
        "frozen": (),
    }


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"rotation": 1.0}, LilaConfig),
        ({"kind": "lila"}, LilaConfig),
        ({"kind": "benton", "stretch": 0.3}, BentonConfig),
        ({"kind": "schwoebel", "theta_max": {"rotation": 1.0}}, SchwoebelConfig),
        (BentonConfig(), BentonConfig),
    ],
)
def test_the_affine_kind_is_named_or_lila(given, kind):
    assert type(HypersConfig(affine=given).affine) is kind


def test_an_unknown_affine_kind_names_the_known():
    with pytest.raises(ConfigError, match="`kind` must be `lila`, `benton` or `schwoebel`"):
        parse(HypersConfig, {"affine": {"kind": "stn"}})


def test_a_field_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="`stretch` is not a field of LilaConfig"):
        parse(HypersConfig, {"affine": {"stretch": 0.3}})


def test_survives_json():
    config = HypersConfig(
        affine=SchwoebelConfig(), mask={"keep": (0.1, 0.9)}, dropout={"rate": 0.3}, noise=0.1
    )
    assert HypersConfig.model_validate_json(config.model_dump_json()) == config


def test_a_dotted_path_makes_a_part():
    config = HypersConfig().replaced({"affine.rotation": 3.0})
    assert config.affine == LilaConfig(rotation=3.0)


def test_images_only_parts_refuse_vectors():
    for part in ({"affine": {}}, {"colour": {}}):
        with pytest.raises(ConfigError, match=r"acts on images \(C, H, W\)"):
            HypersConfig(**part).build(learnable=True, net=nn.Linear(3, 2), in_shape=(3,))


def test_only_parts_that_are_there_can_be_frozen():
    with pytest.raises(ConfigError, match="names `noise`"):
        parse(HypersConfig, {"frozen": ["noise"]})
    with pytest.raises(ConfigError, match="frozen"):
        parse(HypersConfig, {"frozen": ["weight_decay"]})


def test_the_order_of_frozen_parts_does_not_matter():
    values = {"noise": 0.1, "temperature": 2.0}
    assert HypersConfig(**values, frozen=("temperature", "noise")) == HypersConfig(
        **values, frozen=("noise", "temperature")
    )
