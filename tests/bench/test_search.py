import json

import pytest
from tuneparts.bench import search
from tuneparts.bench.barrier import Intervals

from tuneparts.errors import UnknownNameError


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="barrier"):
        search.run(only="barriers")


def test_utilisation_is_what_was_slept_of_what_could_be() -> None:
    found = Intervals(ended=[(10.0, 2.0), (12.0, 4.0)]).row("ours", slots=2, whole=9.0)
    assert (found["first to last interval s"], found["utilisation"]) == (4.0, 0.75)


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
    }
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("way ")]
    assert len(told) >= len(found["rows"])
