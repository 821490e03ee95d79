"""The bench of timing: what it compares, and all of it small in the slow tier."""

import os

import pytest

from benchmarks import sleeping, timing
from benchmarks.sleeping import factor, place
from benchmarks.stock_trials import began, gather
from benchmarks.timing import Case, algorithm
from tuneparts.core.schema import lookup


def test_durations_span_a_factor_of_ten() -> None:
    found = sorted(factor(number) for number in range(2000))
    assert found[1900] / found[100] == pytest.approx(10, rel=0.15)
    assert found[1000] == pytest.approx(1, rel=0.1)


def test_the_clock_starts_when_all_have_gathered_and_once(tmp_path) -> None:
    folder = tmp_path / "marks"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}").touch()
    gather(str(folder), 4)  # this process is the fourth
    start = began(folder)
    assert (folder / str(os.getpid())).exists()
    (folder / str(os.getpid())).unlink()
    gather(str(folder), 4)  # a worker that comes later changes nothing
    gather(str(folder), 99)  # and one that has gathered does not wait
    assert began(folder) == start


def test_both_timings_run_the_same_trials_for_the_same_times() -> None:
    case = Case(slots=2, trials=6, unit=1.0)
    for draw in (0, 3):
        found = []
        for name in ("asha_free", "asha_exact", "halving"):
            kind, _, how = name.partition("_")
            config = sleeping.SleepingConfig(steps=16)
            one = sleeping.search(name, algorithm(kind, how or "exact", case), config, seed=draw)
            arm, metric = one.arms[0], lookup("val/accuracy")
            batch = next(arm.algorithm.proposals(arm, draw, metric))
            keys = ("x", "number", "draw", "seconds", "law")
            found.append([tuple(part.config[key] for key in keys) for part in batch.run])
        assert found[0] == found[1] == found[2]
        assert [row[0] for row in found[0]] == [place(i, draw) for i in range(6)]


def test_a_ratio_is_that_of_the_sums_over_draws() -> None:
    rows = [
        {"way": "ray, asha", "wall s": 3.0},
        {"way": "ray, asha", "wall s": 5.0},
        {"way": "ours, asha, free", "wall s": 1.0},
        {"way": "ours, asha, free", "wall s": 3.0},
    ]
    assert timing.stock_over_ours(rows, "asha", "ours, asha, free") == 2.0


@pytest.mark.slow
@pytest.mark.ray
def test_the_bench_measures_all_ways(local_ray) -> None:
    result = timing.run(quick=True)
    assert set(result["ratios"]) == {
        "asha.free.2", "asha.exact.2", "tpe.free.2", "tpe.exact.2",
    }  # fmt: skip
    assert all(ratio > 0 for ratio in result["ratios"].values())
