"""The bench of packed trials runs, and compares what it says."""

from tuneparts.bench import packed


def test_a_quick_run_has_a_ratio_for_every_net_and_number_of_lanes(monkeypatch) -> None:
    monkeypatch.delitem(packed._CASES, "mnist_cnn")
    found = packed.run(quick=True)
    assert set(found["ratios"]) == {f"speedup.{net}.{p}" for net in packed._CASES for p in (1, 4)}
    for row in found["rows"]:
        assert row["slowest"] <= row["speedup"] <= row["fastest"]
