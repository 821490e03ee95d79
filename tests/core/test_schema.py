import threading
from dataclasses import replace

import pytest

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.testing.null import NullConfig


def test_families_match_by_their_stem() -> None:
    assert schema.lookup("lml/term.3").name == "lml/term.*"
    assert schema.lookup("hyper/keep.12").name == "hyper/keep.*"


def test_an_unknown_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="val/accuracy"):
        schema.lookup("val/acuracy")


@pytest.mark.parametrize(
    "name", ["test/accuracy", "test/nll", "hyper/rotation", "train/loss", "cost/steps"]
)
def test_selection_on_anything_but_held_out_data_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"held-out validation data or L_ML"):
        schema.selection_metric(name)


def test_better_follows_the_direction() -> None:
    assert schema.selection_metric("val/accuracy").better(0.9, 0.8)
    assert schema.selection_metric("val/nll").better(0.8, 0.9)
    assert not schema.selection_metric("val/nll").better(0.8, 0.8)


def test_intervals_keep_to_what_a_metric_can_be() -> None:
    accuracy = schema.lookup("test/accuracy")
    assert accuracy.bounded(0.9, 1.2) == (0.9, 1.0)
    assert accuracy.bounded_gap(-4.0, 0.2) == (-1.0, 0.2)


def test_the_best_trial_has_the_best_finite_score_and_the_smallest_index() -> None:
    scores = {3: 0.9, 0: 0.7, 1: 0.9, 2: None, 4: float("nan")}
    assert schema.best_index(scores, schema.lookup("val/accuracy")) == 1
    assert schema.best_index(scores, schema.lookup("val/nll")) == 0
    assert schema.best_index({5: None}, schema.lookup("val/nll")) == 5


def test_every_metric_is_described() -> None:
    for metric in schema.METRICS.values():
        assert metric.meaning
        assert metric.decimals >= 0
        assert isinstance(metric.direction, Direction)
        assert "/" in metric.name


@pytest.fixture
def own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))


REGRET = Metric("val/regret", Direction.DOWN, "", 3, "distance to the optimum")


@pytest.mark.usefixtures("own_schema")
class TestDeclare:
    def test_a_declared_metric_can_be_looked_up_and_selected_by(self) -> None:
        assert schema.find("val/regret") is None
        schema.declare(REGRET)
        schema.declare(REGRET)
        assert schema.lookup("val/regret") is REGRET
        assert schema.selection_metric("val/regret") is REGRET

    def test_a_declared_family_matches_by_its_stem(self) -> None:
        family = replace(REGRET, name="val/regret.*")
        schema.declare(family)
        assert schema.lookup("val/regret.7") is family

    def test_own_test_metrics_and_descriptions_are_not_selected_by(self) -> None:
        schema.declare(replace(REGRET, name="test/regret"))
        schema.declare(replace(REGRET, name="val/size", direction=Direction.NONE))
        for name in ("test/regret", "val/size"):
            with pytest.raises(ConfigError, match="held-out validation data"):
                schema.selection_metric(name)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": "val/accuracy"}, "`val/accuracy` is .*larger is better.*smaller is better"),
            ({"name": "lml/term.2"}, "`lml/term.2` is"),
            ({"name": "regret"}, "family/quantity"),
            ({"name": "val/a b"}, "family/quantity"),
            ({"name": "val/new", "decimals": -1}, "decimals >= 0"),
            ({"name": "val/new", "meaning": ""}, "a meaning"),
        ],
    )
    def test_another_metric_of_a_taken_name_is_refused(self, changes, message: str) -> None:
        schema.declare(REGRET)
        with pytest.raises(ConfigError, match=message):
            schema.declare(replace(REGRET, **changes))
        assert schema.lookup("val/regret") is REGRET

    def test_two_searches_of_a_process_may_mean_different_things(self) -> None:
        other = replace(REGRET, direction=Direction.UP)
        schema.declare(REGRET)
        schema.declare(other)
        assert schema.lookup("val/regret") is other
        with schema.using(REGRET):
            assert schema.lookup("val/regret") is REGRET
            seen = []
            thread = threading.Thread(target=lambda: seen.append(schema.lookup("val/regret")))
            thread.start()
            thread.join()
        assert seen == [other]
        assert schema.lookup("val/regret") is other

    def test_one_search_means_one_thing(self) -> None:
        other = replace(REGRET, direction=Direction.UP)
        message = "smaller is better.*also.*larger is better"
        with pytest.raises(ConfigError, match=message), schema.using(REGRET, other):
            pass

    def test_a_config_declares_the_metrics_of_its_method(self) -> None:
        class Mine(NullConfig):
            metrics = (REGRET,)

        assert schema.find("val/regret") is None
        Mine()
        assert schema.lookup("val/regret") is REGRET
