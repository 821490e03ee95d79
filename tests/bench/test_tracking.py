import json
import os

import pytest

from benchmarks import tracking


@pytest.mark.mlflow
@pytest.mark.slow
def test_the_bench_measures_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    found = tracking.run(quick=True)
    assert json.loads(json.dumps(found)) == found
    assert found["bench"] == "tracking"
    assert set(found["ratios"]) == {"stock_over_ours_training_side", "stock_over_ours_total"}
    assert found["ratios"]["stock_over_ours_training_side"] > 50
    assert [(row["way"], row["side"]) for row in found["rows"]] == [
        ("ours", "total"),
        ("stock", "total"),
        ("ours", "training side"),
        ("stock", "training side"),
    ]
    assert "MLFLOW_TRACKING_URI" not in os.environ
