import json

from benchmarks import pwfn


def test_a_quick_run_has_both_ratios_and_a_row_for_each_size() -> None:
    result = pwfn.run(quick=True)
    assert result["bench"] == "pwfn"
    assert set(result["ratios"]) == {
        "reference_over_ours.1e3",
        "gaussian_step.mlp",
        "gaussian_step.resnet18",
    }
    assert min(result["ratios"].values()) > 0
    rounds = [row for row in result["rows"] if row["what"].startswith("round.")]
    assert [row["weights"] for row in rounds] == [10**3, 10**4]
    assert all(row["seconds"]["median"] > 0 for row in result["rows"])
    json.dumps(result)
