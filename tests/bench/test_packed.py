"""The bench of packed trials runs, and compares what it says."""

from benchmarks import packed


def test_a_quick_run_has_a_ratio_for_every_net_and_number_of_trials(monkeypatch) -> None:
    monkeypatch.delitem(packed._CASES, "mnist_cnn")
    found = packed.run(quick=True)
    assert set(found["ratios"]) == {f"speedup.{net}.4" for net in packed._CASES}
    limits = [row for row in found["rows"] if row["what"].startswith("limit.")]
    assert {row["what"] for row in limits} == {"limit.small_mlp.4", "limit.mlp.4"}
    assert all(row["bmm GFLOP/s"] > 0 for row in limits)
    for row in (row for row in found["rows"] if row not in limits):
        assert 0 < row["slowest"] <= row["speedup"] <= row["fastest"]
