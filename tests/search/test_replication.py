"""Replicates: which data each has, and who trains under fresh seeds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tuneparts.core import seeding
from tuneparts.data.config import Data
from tuneparts.data.task import digest
from tuneparts.executors import Place, execute
from tuneparts.executors.setting import TrialSetting, trial_data
from tuneparts.methods.baselines.config import Standard
from tuneparts.search import data_record, runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
from tuneparts.search.extension import extended
from tuneparts.search.journal import records
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search

DIGITS = Data(name="digits", rotated=True, num_train=50, num_val=20, num_test=30)
SHORT = Standard(steps=2, interval=1, batch_size=5)
RATES: dict[str, Any] = {"optimiser.lr": Uniform(low=1e-3, high=1e-1, log=True)}


def asked(*arms: Arm, data: Data = DIGITS, seeds: tuple[int, ...] = (0, 1)) -> Search:
    return Search(
        name="asked",
        question="?",
        scale=Scale.SMOKE,
        data=data,
        steps=2,
        seeds=seeds,
        arms=arms or (Arm(name="a", config=SHORT),),
    )


def random_arm(name: str = "random", **fields: Any) -> Arm:
    return Arm(name=name, config=SHORT, algorithm=RandomSearch(num_trials=2), space=RATES, **fields)


def test_a_replicate_draws_split_angles_and_the_digits_test_part() -> None:
    one, again, other, fixed = DIGITS.load(1), DIGITS.load(1), DIGITS.load(2), DIGITS.load()
    assert digest(one) == digest(again) != digest(other) != digest(fixed)
    whole = DigitsOnly.load(1), DigitsOnly.load(2)
    assert not np.array_equal(whole[0].test.inputs, whole[1].test.inputs)
    assert one.train.degrees is not None
    assert other.train.degrees is not None
    assert not set(one.train.degrees) & set(other.train.degrees)
    for task in whole:  # no image is in two parts: all 1,797 are there
        assert len(task.train) + len(task.test) == 1797


DigitsOnly = Data(name="digits")


def test_a_given_seed_fixes_the_data_as_it_always_was() -> None:
    fixed = DIGITS.replaced({"seed": 0})
    assert digest(fixed.load(1)) == digest(fixed.load(2)) == digest(DIGITS.load())
    assert asked(data=fixed).data_draws() == [None]
    assert asked().data_draws() == [0, 1]
    assert asked().digest != asked(data=fixed).digest


def seeded(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2


def test_a_data_function_that_takes_a_seed_gets_that_of_the_replicate() -> None:
    own = Data(name=seeded)
    assert not np.isin(own.load(1).train.inputs, own.load(2).train.inputs).any()
    told = Data(name=seeded, arguments={"seed": 5})
    assert np.isin(told.load(1).test.inputs, seeded(5)[0]).all()


def test_arms_of_a_replicate_share_its_data_in_workers_and_readers(tmp_path: Path) -> None:
    search = asked(Arm(name="a", config=SHORT), random_arm())
    setting = TrialSetting.of(search, str(tmp_path), folder=tmp_path)
    tasks = [
        setting.context(TrialId(arm, seed, 0), {}).task
        for seed in (0, 1)
        for arm in ["a", "random"]
    ]
    assert tasks[0] is tasks[1]
    assert tasks[2] is tasks[3]
    assert digest(tasks[0]) != digest(tasks[2])
    assert digest(trial_data(search, TrialId("a", 1, 0), {})) == digest(tasks[2])
    record = data_record.read(tmp_path)
    assert record is not None
    assert record["draws"]["1"]["digest"] == digest(tasks[2])


def test_a_run_that_grows_adds_its_draws_and_keeps_the_old_ones(tmp_path: Path) -> None:
    search = asked()
    TrialSetting.of(search, str(tmp_path), folder=tmp_path)
    before = json.loads((tmp_path / data_record.FILE).read_text())["draws"]
    TrialSetting.of(extended(search, seeds=[7])[0], str(tmp_path), folder=tmp_path)
    after = json.loads((tmp_path / data_record.FILE).read_text())["draws"]
    assert list(after) == ["0", "1", "7"]
    assert {seed: after[seed] for seed in before} == before


def test_an_arm_takes_what_its_source_arm_drew_and_trains_under_a_fresh_seed(
    tmp_path: Path,
) -> None:
    taking = SHORT.replaced({"config_from": "random"})
    again = Arm(name="again", config=taking, fresh_seed=True)
    search = asked(random_arm(), again, seeds=(0,))
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    found = records(tmp_path / "journal.jsonl")
    own = found[TrialId("again", 0, 0)].config["optimiser"]["lr"]
    assert own in [found[TrialId("random", 0, i)].config["optimiser"]["lr"] for i in (0, 1)]
    context = TrialSetting.of(search, str(tmp_path)).context(TrialId("again", 0, 0), {})
    assert context.seed == seeding.derive(0, "fresh", "again") != 0


def test_only_what_was_drawn_can_be_taken() -> None:
    with pytest.raises(ValidationError, match=r"arms\['a'\].fresh_seed: needs `hypers_from` or"):
        Arm(name="a", config=SHORT, fresh_seed=True)
    both = SHORT.replaced({"hypers_from": "b", "config_from": "b"})
    with pytest.raises(ValidationError, match=r"arms\['a'\].*`hypers_from` and `config_from`"):
        Arm(name="a", config=both)
    source = Arm(name="a", config=SHORT)
    with pytest.raises(ValidationError, match=r"arms\['b'\].config_from = 'a': .* a space and"):
        asked(source, Arm(name="b", config=SHORT.replaced({"config_from": "a"})))


def test_the_report_says_whether_replicates_have_data_of_their_own(tmp_path: Path) -> None:
    def said(data: Data) -> str:
        run = runs.create(
            tmp_path, asked(data=data), commit="", command="", versions={}, storage=None
        )
        TrialSetting.of(run.search, str(tmp_path), folder=run.folder)
        return RunCard.of(run).replication

    assert "draws its data anew" in said(DIGITS)
    assert "one fixed draw" in said(DIGITS.replaced({"seed": 0}))
    assert "draws its data anew" in said(DigitsOnly)
