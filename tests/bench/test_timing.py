"""The bench of timing: its simulation at once, and all of it small in the slow tier."""

import os

import pytest
from tuneparts.bench import timing
from tuneparts.bench.sleeping import factor, place
from tuneparts.bench.stock_trials import gather, opened
from tuneparts.bench.timing import QUICK, Case, algorithm, makespan, search, stock_makespan

from tuneparts.schema import lookup
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
    rows = timing.simulated(QUICK[0], draws=1)
    assert [row["way"].removeprefix("simulated, ") for row in rows] == [
        "ray, asha", "asha, free", "asha, exact", "halving, exact",
    ]  # fmt: skip


def test_both_timings_run_the_same_trials_for_the_same_times() -> None:
    case = Case(slots=2, trials=6, unit=1.0)
    for draw in (0, 3):
        found = []
        for name in ("asha_free", "asha_exact", "halving"):
            kind, _, how = name.partition("_")
            one = search({name: algorithm(kind, how or "exact", case)}, case, draw=draw)
            arm, metric = one.arms[0], lookup("val/accuracy")
            batch = next(arm.algorithm.proposals(arm, draw, metric))
            keys = ("x", "number", "draw", "seconds", "law")
            found.append([tuple(part.config[key] for key in keys) for part in batch.run])
        assert found[0] == found[1] == found[2]
        assert [row[0] for row in found[0]] == [place(i, draw) for i in range(6)]


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_free_asha_is_rays_rule(law) -> None:
    case = Case(slots=4, trials=24, unit=1.0, law=law)
    for draw in range(5):
        lengths = case.lengths(draw)
        one = search({"asha": algorithm("asha", "free", case)}, case, draw=draw)
        stock = stock_makespan(case.slots, lengths, draw)
        assert makespan(one, case.slots, lengths) == pytest.approx(stock)


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
