import pytest

from tuneparts import schema
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.schema import Direction


def test_families_match_by_their_stem() -> None:
    assert schema.lookup("lml/term.3").name == "lml/term.*"
    assert schema.lookup("hyper/keep.12").name == "hyper/keep.*"


def test_an_unknown_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="val/accuracy"):
        schema.lookup("val/acuracy")


@pytest.mark.parametrize(
    "name", ["test/accuracy", "test/nll", "hyper/rotation", "train/loss", "cost/passes"]
)
def test_selection_on_anything_but_held_out_data_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"held-out validation data or L_ML"):
        schema.selection_metric(name)


def test_better_follows_the_direction() -> None:
    assert schema.selection_metric("val/accuracy").better(0.9, 0.8)
    assert schema.selection_metric("val/nll").better(0.8, 0.9)
    assert not schema.selection_metric("val/nll").better(0.8, 0.8)


def test_every_metric_is_described() -> None:
    for metric in schema.METRICS.values():
        assert metric.meaning
        assert metric.decimals >= 0
        assert isinstance(metric.direction, Direction)
        assert "/" in metric.name
