"""Dimensions over the data, and arms with data of their own."""

import json
import pickle
from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd
import pytest

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.executors import Place, execute
from tuneparts.executors.setting import TrialSetting, restore_learner
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _summarise
from tuneparts.search import frames, runs
from tuneparts.search.algorithms.base import GridSearch, RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.card import RunCard
from tuneparts.search.check import check
from tuneparts.search.events import TrialId
from tuneparts.search.journal import records
from tuneparts.search.space import Choice, Int, Uniform
from tuneparts.search.spec import Search
from tuneparts.testing.null import NullConfig, NullLearner
from tuneparts.training.learner import Context, Learner

NAME = "tests.search.test_data_variants:CountingConfig"


class CountingConfig(NullConfig):
    """Reports how many examples it was given, and of what size."""

    method: Literal["tests.search.test_data_variants:CountingConfig"] = NAME  # type: ignore[assignment]

    def build(self, context: Context) -> Learner:
        return CountingLearner(self, context)


class CountingLearner(NullLearner):
    def __init__(self, config: CountingConfig, context: Context) -> None:
        super().__init__(config, context)
        self.task = context.task

    def advance(self) -> Mapping[str, float]:
        counts = {
            "val/accuracy": len(self.task.train) / 1000,
            "test/accuracy": len(self.task.train),
        }
        return {**super().advance(), **counts, "hyper/rotation": float(self.task.in_shape[-1])}


def arm(name: str = "a", **fields: Any) -> Arm:
    if "space" in fields:
        fields.setdefault("algorithm", GridSearch())
    return Arm(name=name, config=CountingConfig(steps=8, interval=4), **fields)


SIZES = {"data.num_train": Choice(options=(20, 40, 80)), "x": Choice(options=(0.1, 0.7))}


def rows(folder) -> dict[str, Any]:
    return {str(t): r.last.metrics for t, r in sorted(records(folder / "journal.jsonl").items())}


def test_every_trial_learns_from_the_data_that_it_drew(null_search, tmp_path) -> None:
    search = null_search(arm(space=SIZES), arm("b", data={"num_train": 30, "pool": 2}), arm("c"))
    assert parse(Search, json.loads(search.model_dump_json())) == search
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    found = rows(tmp_path)
    trials = frames.trials(tmp_path / "journal.jsonl")
    own = trials[trials["arm"] == "a"]
    assert own["test/accuracy"].tolist() == own["param.data.num_train"].tolist()
    assert own["test/accuracy"].tolist() == [20, 20, 40, 40, 80, 80]
    assert own["param.x"].tolist() == [0.1, 0.7] * 3
    assert found["b/seed0/00000"]["test/accuracy"] == 30
    assert found["b/seed0/00000"]["hyper/rotation"] == 4
    assert found["c/seed0/00000"]["test/accuracy"] == 20
    assert found["c/seed0/00000"]["hyper/rotation"] == 8


def test_another_process_and_a_restored_net_have_the_same_data(null_search, tmp_path) -> None:
    search = null_search(arm(space=SIZES))
    setting = pickle.loads(pickle.dumps(TrialSetting.of(search, str(tmp_path))))
    trial = TrialId("a", 0, 0)
    assert len(setting.context(trial, {"data": {"num_train": 40}}).task.train) == 40
    assert len(setting.context(trial, {}).task.train) == 20
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    best = TrialId("a", 0, 4)
    record = records(tmp_path / "journal.jsonl")[best]
    learner = restore_learner(search, str(tmp_path / "trials"), best, record.config)
    assert len(learner.task.train) == record.last.metrics["test/accuracy"] == 80


def test_changed_variants_are_not_gone_on_with(null_search, tmp_path) -> None:
    search = null_search(arm(space=SIZES))
    TrialSetting.of(search, str(tmp_path), folder=tmp_path)
    record = tmp_path / "data.json"
    facts = json.loads(record.read_text())
    assert set(facts["variants"]) == {f'{{"num_train": {n}}}' for n in (20, 40, 80)}
    facts["variants"]['{"num_train": 40}']["digest"] = "0"
    record.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="goes on with the data that it began with"):
        TrialSetting.of(search, str(tmp_path), folder=tmp_path)


@pytest.mark.parametrize(
    ("path", "options"), [("data.rotated", (True, False)), ("data.num_val", (5, 10))]
)
def test_scores_on_other_examples_are_not_compared_within_an_arm(null_search, path, options):
    search = null_search(arm(space={path: Choice(options=options)}))
    with pytest.raises(ConfigError, match=r"they differ between .* `Arm\(data="):
        check(search)


@pytest.mark.parametrize(
    ("fields", "law"),
    [
        ({"space": {"data.nothing": Choice(options=(1, 2))}}, "`nothing` is not a field"),
        (
            {
                "space": {"data.num_train": Uniform(low=1, high=9)},
                "algorithm": RandomSearch(num_trials=2),
            },
            "over a range, but",
        ),
        ({"space": {"data.num_train": Int(low=1, high=99)}}, "over 99, but"),
        ({"space": {"data.target": Choice(options=("values",))}}, "has another target"),
        (
            {"space": {"data.pool": Choice(options=(1,))}, "data": {"pool": 2}},
            "are in its space too",
        ),
    ],
)
def test_data_that_cannot_be_meant_is_refused(null_search, fields, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        null_search(arm(**fields))


def test_arms_on_other_examples_have_no_common_winner(null_search, tmp_path) -> None:
    arms = [
        arm(f"{name}_rotated_{str(rotated).lower()}", data={**size, "rotated": rotated})
        for rotated in (True, False)
        for name, size in (("m", {}), ("n", {"num_train": 30}))
    ]
    search = null_search(*arms, seeds=(0, 1, 2))
    run = runs.create(tmp_path, search, command="", commit="", versions={}, storage="")
    execute(search, folder=run.folder, place=Place("local", workers=1))
    told = RunCard.of(run)
    assert [one.judged_on for one in told.arms] == ["rotated=True"] * 2 + ["rotated=False"] * 2
    data = RunData(told, frames.trials(run.folder / "journal.jsonl"), pd.DataFrame())
    assert data.verdict("test/accuracy").winner is None
    assert data.answer.count("n_rotated_true") == data.answer.count("n_rotated_false") == 1
    assert data.answer.startswith("With rotated=True: n_rotated_true has the highest")
    assert "not compared with each other" in str(data.tables[0].notes)
    assert len(_summarise(data.trials, told)) == 4
