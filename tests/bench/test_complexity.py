import json

import pytest
import torch

from tuneparts.bench import complexity
from tuneparts.models import Mlp

METHODS = (
    "standard",
    "partitioned_weights",
    "partitioned_hypers",
    "augerino",
    "laplace_weights",
    "laplace_hypers",
    "kronecker_hypers",
)


@pytest.mark.slow
def test_every_method_has_a_row_at_every_width():
    threads = torch.get_num_threads()
    result = complexity.run(quick=True)
    assert [(row["net"], row["width"], row["method"]) for row in result["rows"]] == [
        (net, width, method) for net in ("mlp", "cnn") for width in (8, 16) for method in METHODS
    ]
    assert all(ratio > 0 for ratio in result["ratios"].values())
    assert len(result["ratios"]) == 2 * 2 * 2 * (len(METHODS) - 1)
    json.dumps(result)
    assert torch.get_num_threads() == threads


def test_laplace_needs_the_jacobians_and_partitioned_does_not():
    rows = {row["method"]: row for row in complexity._rows("mlp", 16, Mlp(widths=(16,)), rounds=1)}
    weights = rows["standard"]["weights"]
    assert weights == 14 * 14 * 16 + 16 + 16 * 10 + 10
    jacobians = 4 * 32 * 10 * weights / 1e6
    assert rows["laplace_hypers"]["MB"] > jacobians
    assert rows["partitioned_hypers"]["MB"] < jacobians
    assert rows["kronecker_hypers"]["MB"] < jacobians
    assert rows["standard"]["time ratio"] == rows["standard"]["memory ratio"] == 1


def test_where_memory_is_short_the_row_says_so(monkeypatch):
    monkeypatch.setattr(complexity, "_MAX_GB", 1e-3)
    rows = {row["method"]: row for row in complexity._rows("mlp", 8, Mlp(widths=(8,)), rounds=1)}
    for method in ("laplace_weights", "laplace_hypers"):
        assert rows[method]["note"].startswith("out of memory")
        assert "ms" not in rows[method]
    assert "ms" in rows["augerino"]
    assert "ms" in rows["kronecker_hypers"]
