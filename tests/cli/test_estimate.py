"""What `--dry-run` promises, beside what runs."""

import pytest

from tuneparts import executors
from tuneparts.cli import _estimate
from tuneparts.cli._output import terminal
from tuneparts.core.errors import DataMissingError
from tuneparts.data.config import Data
from tuneparts.methods.pwfn._learner import PwfnLearner
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.nets import DigitsCnn
from tuneparts.search import frames
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha, Hyperband, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search


def test_what_runs_is_within_the_bounds(null_search, null_arm, tmp_path) -> None:
    algorithms = {
        "random": RandomSearch(num_trials=5),
        "tpe": Tpe(num_trials=5, window=2, num_startup=2),
        "asha": Asha(num_trials=9, min_steps=2, reduction=2),
        "halving": SuccessiveHalving(num_trials=9, min_steps=2, reduction=2),
        "hyperband": Hyperband(num_trials=9, min_steps=2, reduction=2),
        "pbt": Pbt(population=4, num_rounds=2),
    }
    arms = [null_arm(n, algorithm=a) for n, a in algorithms.items()]
    search = null_search(*arms, null_arm("after", hypers_from="random"), seeds=(0, 1))
    executors.execute(search, folder=tmp_path, place=executors.Place("local", workers=1))
    ran = frames.trials(tmp_path / "journal.jsonl").groupby("arm")
    for arm, row in zip(search.arms, _estimate.plan_rows(search, None), strict=True):
        own, expected, most = ran.get_group(arm.name), row["steps"], row["at most"]
        assert 0 < own["cost/steps"].sum() <= most
        assert expected <= most
        assert len(own) == arm.trials_per_seed * 2
        if arm.name in {"random", "tpe", "pbt", "after"}:
            assert own["cost/steps"].sum() == most


def test_without_data_the_plan_lacks_the_time_alone(
    null_search, null_arm, monkeypatch, capsys
) -> None:
    def missing(self: Search) -> None:
        raise DataMissingError("there is no such set here. Get it.")

    monkeypatch.setattr(Search, "load_data", missing)
    monkeypatch.setenv("COLUMNS", "80")
    search = null_search(null_arm("random", algorithm=RandomSearch(num_trials=5)))
    _estimate.print_plan(search, terminal())
    said = capsys.readouterr().out
    assert "no time is given: there is no such set here. Get it." in said
    assert "hours" not in said
    for word in ("random", "40", "1 CPU"):
        assert word in said
    with pytest.raises(DataMissingError):
        _estimate.seconds_per_arm(search, _estimate.Console(quiet=True))


def test_shared_pretraining_is_not_trained_to_measure_it_and_counts_once(monkeypatch) -> None:
    def pretrain(self: PwfnLearner) -> None:
        raise AssertionError("all of the pretraining")

    monkeypatch.setattr(PwfnLearner, "_shared_pretraining", pretrain)
    config = Pwfn(
        steps=1000,
        interval=500,
        pretrain=0.9,
        shares_pretraining=True,
        net=DigitsCnn(channels=(2, 2), hidden=4),
    )
    search = Search(
        name="fixed",
        question="?",
        scale=Scale.SMOKE,
        data=Data(name="digits", num_train=100, num_val=100),
        metric="val/accuracy",
        steps=1000,
        seeds=(0, 1),
        arms=(Arm(name="one", config=config), Arm(name="other", config=config)),
    )
    costs = _estimate.seconds_per_arm(search, _estimate.Console(quiet=True))
    assert set(costs) == {"one", "other"}
    assert _estimate.spared_steps(search) == {"one": 0, "other": 1800}
    one, other = _estimate.plan_rows(search, {"one": 3.6, "other": 3.6})
    assert (one["steps"], other["steps"]) == (2000, 2000)
    assert (one["hours"], other["hours"]) == (pytest.approx(2.0), pytest.approx(0.2))
