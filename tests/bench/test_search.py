import json

import pytest

from benchmarks import search


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_the_bench_compares_trials_barriers_and_starts(capfd: pytest.CaptureFixture[str]) -> None:
    found = search.run(quick=True)
    assert json.loads(json.dumps(found)) == found
    assert set(found["ratios"]) == {
        "ray_reused_over_ours",
        "ray_reused_over_ours_with_start",
        "ours_mlflow_over_ours_with_start",
        "optuna_over_ours_with_start",
        "ray_asha_over_ours",
        "ray_asha_over_our_halving",
        "ray_cold_over_ours_on_ray",
        "our_function_over_optuna",
    }
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("way ")]
    assert len(told) >= len(found["rows"])
