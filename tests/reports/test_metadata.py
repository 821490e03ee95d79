from tuneparts.reports.metadata import ArmMetadata, ReportMetadata


def test_survives_json(metadata):
    assert ReportMetadata.from_json(metadata.to_json()) == metadata


def test_leaders_nearest_first():
    arms = [
        ArmMetadata(n, "m", 1, (0,), follows=f) for n, f in [("a", None), ("b", "a"), ("c", "b")]
    ]
    assert ReportMetadata("s", "q", tuple(arms)).leaders("c") == ("b", "a")
