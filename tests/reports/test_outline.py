from dataclasses import replace

import pytest

from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports.outline import ArmOutline, Outline


def test_survives_json(outline):
    assert Outline.from_json(outline.to_json()) == outline


def test_test_metric_is_refused(outline):
    with pytest.raises(ConfigError, match="validation"):
        replace(outline, metric="test/accuracy")


def test_no_metric_needs_one_trial_per_seed(outline):
    with pytest.raises(ConfigError, match="several trials"):
        replace(outline, metric="")
    single = tuple(arm for arm in outline.arms if arm.trials_per_seed == 1)
    assert replace(outline, metric="", arms=single).metric == ""


@pytest.mark.parametrize(
    ("arm", "law"),
    [
        (ArmOutline("a", "standard", 0, (0,)), "at least one trial"),
        (ArmOutline("a", "standard", 1, (0, 0)), "distinct seeds"),
        (ArmOutline("a", "standard", 1, ()), "distinct seeds"),
        (ArmOutline("a", "standard", 1, (0,), follows="a"), "follow itself"),
    ],
)
def test_impossible_arms_are_refused(arm, law):
    with pytest.raises(ConfigError, match=law):
        Outline("s", "q", (arm,))


def test_following_in_a_ring_is_refused():
    arms = [ArmOutline(n, "m", 1, (0,), follows=f) for n, f in [("a", "b"), ("b", "c"), ("c", "b")]]
    with pytest.raises(ConfigError, match="follow itself"):
        Outline("s", "q", tuple(arms))


def test_following_nobody_is_refused():
    with pytest.raises(UnknownNameError, match="partitoned"):
        Outline("s", "q", (ArmOutline("a", "m", 1, (0,), follows="partitoned"),))


def test_same_name_twice_is_refused(outline):
    with pytest.raises(ConfigError, match="twice"):
        replace(outline, arms=(outline.arms[0], outline.arms[0]))


def test_leaders_nearest_first():
    arms = [
        ArmOutline(n, "m", 1, (0,), follows=f) for n, f in [("a", None), ("b", "a"), ("c", "b")]
    ]
    assert Outline("s", "q", tuple(arms)).leaders("c") == ("b", "a")
