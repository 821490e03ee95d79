"""The bench of timing: its simulation at once, and all of it small in the slow tier."""

import os

import pytest

from tuneparts.bench import timing
from tuneparts.bench.sleeping import factor, gather, opened
from tuneparts.bench.timing import QUICK, Case, algorithm, makespan, search
from tuneparts.search.algorithms import RandomSearch


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
    start = opened(folder)
    assert (folder / str(os.getpid())).exists()
    (folder / str(os.getpid())).unlink()
    gather(str(folder), 4)  # a worker that comes later changes nothing
    gather(str(folder), 99)  # and one that has gathered does not wait
    assert opened(folder) == start


def test_a_simulated_search_takes_as_long_as_its_slots_are_busy() -> None:
    case = Case(slots=2, trials=4, unit=1.0)
    one = search({"random": RandomSearch(num_trials=4)}, case)
    assert makespan(one, 2, [3.0, 1.0, 1.0, 2.0]) == 4.0
    assert makespan(one, 1, [3.0, 1.0, 1.0, 2.0]) == 7.0


def test_waiting_for_whole_batches_takes_longer_than_a_window_or_no_order_at_all() -> None:
    case = Case(slots=8, trials=32, unit=1.0)
    lengths = [factor(i) for i in range(32)]
    exact, free = (algorithm("tpe", how, case) for how in ("exact", "free"))
    in_batches = exact.replaced({"window": None, "batch": 8, "sampler": "random"})
    walls = [
        makespan(search({"tpe": one}, case), 8, lengths)
        for one in (
            free.replaced({"sampler": "random"}),
            exact.replaced({"sampler": "random"}),
            in_batches,
        )
    ]
    assert walls[0] < 1.1 * walls[1] < walls[2]


def test_the_simulation_has_a_row_for_each_way() -> None:
    rows = timing.simulated(QUICK, draws=1)
    assert [row["way"] for row in rows] == [
        f"simulated, {kind}, {how}" for kind in ("asha", "tpe") for how in ("free", "exact")
    ]


@pytest.mark.slow
@pytest.mark.ray
def test_the_bench_measures_all_ways(local_ray) -> None:
    result = timing.run(quick=True)
    assert set(result["ratios"]) == {
        "asha.free.2", "asha.exact.2", "tpe.free.2", "tpe.exact.2",
    }  # fmt: skip
    assert all(ratio > 0 for ratio in result["ratios"].values())
