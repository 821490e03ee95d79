from tuneparts.core import schema
from tuneparts.core.schema import Direction, Metric
from tuneparts.results.metadata import ArmMetadata, ReportMetadata


def test_survives_json(metadata):
    assert ReportMetadata.from_json(metadata.to_json()) == metadata


def test_leaders_nearest_first():
    arms = [
        ArmMetadata(n, "m", 1, (0,), follows=f) for n, f in [("a", None), ("b", "a"), ("c", "b")]
    ]
    assert ReportMetadata("s", "q", tuple(arms)).leaders("c") == ("b", "a")


def test_metrics_of_methods_are_declared_for_readers_without_the_methods(monkeypatch):
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))
    own = Metric("val/regret", Direction.DOWN, "s", 2, "distance to the optimum")
    told = ReportMetadata("s", "q", (), metric="val/regret", metrics=(own,))
    assert schema.find("val/regret") is None
    assert ReportMetadata.from_json(told.to_json()) == told
    assert schema.selection_metric("val/regret") == own
