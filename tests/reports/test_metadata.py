from dataclasses import replace

import pytest

from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports.metadata import ArmMetadata, ReportMetadata


def test_survives_json(metadata):
    assert ReportMetadata.from_json(metadata.to_json()) == metadata


def test_test_metric_is_refused(metadata):
    with pytest.raises(ConfigError, match="validation"):
        replace(metadata, metric="test/accuracy")


def test_no_metric_needs_one_trial_per_seed(metadata):
    with pytest.raises(ConfigError, match="several trials"):
        replace(metadata, metric="")
    single = tuple(arm for arm in metadata.arms if arm.trials_per_seed == 1)
    assert replace(metadata, metric="", arms=single).metric == ""


@pytest.mark.parametrize(
    ("arm", "law"),
    [
        (ArmMetadata("a", "standard", 0, (0,)), "at least one trial"),
        (ArmMetadata("a", "standard", 1, (0, 0)), "distinct seeds"),
        (ArmMetadata("a", "standard", 1, ()), "distinct seeds"),
        (ArmMetadata("a", "standard", 1, (0,), follows="a"), "follow itself"),
    ],
)
def test_impossible_arms_are_refused(arm, law):
    with pytest.raises(ConfigError, match=law):
        ReportMetadata("s", "q", (arm,))


def test_following_in_a_ring_is_refused():
    arms = [
        ArmMetadata(n, "m", 1, (0,), follows=f) for n, f in [("a", "b"), ("b", "c"), ("c", "b")]
    ]
    with pytest.raises(ConfigError, match="follow itself"):
        ReportMetadata("s", "q", tuple(arms))


def test_following_nobody_is_refused():
    with pytest.raises(UnknownNameError, match="partitoned"):
        ReportMetadata("s", "q", (ArmMetadata("a", "m", 1, (0,), follows="partitoned"),))


def test_same_name_twice_is_refused(metadata):
    with pytest.raises(ConfigError, match="twice"):
        replace(metadata, arms=(metadata.arms[0], metadata.arms[0]))


def test_leaders_nearest_first():
    arms = [
        ArmMetadata(n, "m", 1, (0,), follows=f) for n, f in [("a", None), ("b", "a"), ("c", "b")]
    ]
    assert ReportMetadata("s", "q", tuple(arms)).leaders("c") == ("b", "a")
