"""What `--dry-run` promises, beside what runs."""

import pytest

from tuneparts import executors, frames
from tuneparts.cli import estimate
from tuneparts.cli.output import terminal
from tuneparts.errors import DataMissingError
from tuneparts.search.algorithms import Hyperband, SuccessiveHalving
from tuneparts.search.spec import Asha, Pbt, RandomSearch, Search, Tpe
from tuneparts.search.stopping import Stop


def test_what_runs_is_within_the_bounds(null_search, null_arm, tmp_path) -> None:
    algorithms = {
        "random": RandomSearch(num_trials=5),
        "stopped": RandomSearch(num_trials=5),
        "tpe": Tpe(num_trials=5, batch=2, num_startup=2),
        "asha": Asha(num_trials=9, min_passes=2, reduction=2),
        "halving": SuccessiveHalving(num_trials=9, min_passes=2, reduction=2),
        "hyperband": Hyperband(num_trials=9, min_passes=2, reduction=2),
        "pbt": Pbt(population=4, num_rounds=2),
    }
    stops = {"stopped": Stop(patience=1)}
    arms = [null_arm(n, algorithm=a, stop=stops.get(n)) for n, a in algorithms.items()]
    search = null_search(*arms, null_arm("after", follows="random"), seeds=(0, 1))
    executors.execute(search, folder=tmp_path, executor="local", workers=1)
    ran = frames.trials(tmp_path / "journal.jsonl").groupby("arm")
    for arm in search.arms:
        own = ran.get_group(arm.name)
        expected, most = estimate.expected_and_most(search, arm)
        assert 0 < own["cost/passes"].sum() <= most
        assert expected <= most
        assert len(own) == arm.trials_per_seed * 2
        if arm.name in {"random", "tpe", "pbt", "after"}:
            assert own["cost/passes"].sum() == most


def test_without_data_the_plan_lacks_the_time_alone(
    null_search, null_arm, monkeypatch, capsys
) -> None:
    def missing(self: Search) -> None:
        raise DataMissingError("there is no such set here. Get it.")

    monkeypatch.setattr(Search, "load_data", missing)
    monkeypatch.setenv("COLUMNS", "80")
    search = null_search(null_arm("random", algorithm=RandomSearch(num_trials=5)))
    estimate.print_plan(search, terminal())
    said = capsys.readouterr().out
    assert "no time is given: there is no such set here. Get it." in said
    assert "hours" not in said
    for word in ("random", "40", "1 CPU"):
        assert word in said
    with pytest.raises(DataMissingError):
        estimate.seconds_per_arm(search, estimate.Console(quiet=True))
