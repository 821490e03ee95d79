"""Packed searches on the local executor: the same rows, whatever goes wrong on the way."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.executors.test_local import facts
from tuneparts.baselines.standard import StandardConfig
from tuneparts.data.config import DataConfig
from tuneparts.executors import execute, logs
from tuneparts.executors.packed import PackExecution, execution_of
from tuneparts.executors.worker import Report, TrialSetting
from tuneparts.journal import TrialId, records
from tuneparts.search.algorithms import SuccessiveHalving, whole_trial
from tuneparts.search.packs import pack_of
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, Pbt, RandomSearch, Scale, Search
from tuneparts.search.storage import Folder
from tuneparts.training.packed.pack import SupervisedPack

AFFINE = {"affine": {"kind": "lila", "rotation": 0.3}, "samples": 2}


def search(*, packed: int = 3, trials: int = 4, high: float = 1e-1, **fields: Any) -> Search:
    config = StandardConfig(
        passes=8, interval=2, net={"name": "mlp", "widths": (4,)}, hypers=AFFINE, batch_size=10
    )
    arm = Arm(
        name="random",
        config=config,
        packed=packed,
        algorithm=fields.pop("algorithm", RandomSearch(num_trials=trials)),
        space={
            "optimiser.lr": Uniform(low=1e-3, high=high, log=True),
            "hypers.affine.rotation": Uniform(low=0.0, high=3.0),
        },
        **fields,
    )
    return Search(
        name="packed",
        question="Are packed trials the same?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/nll",
        passes=8,
        seeds=(0,),
        arms=(arm,),
    )


def run(one: Search, folder: Path, **options: Any) -> dict[str, Any]:
    options = {"workers": 1, **options}
    assert execute(one, folder=folder, executor="local", **options).status == "done"
    return facts(folder)


def farthest(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference between two runs' numbers; all else must be equal."""
    assert one.keys() == other.keys()
    largest = 0.0
    for trial, (configs, rows, end) in one.items():
        assert (configs, end) == (other[trial][0], other[trial][2])
        assert {step: row.keys() for step, row in rows.items()} == {
            step: row.keys() for step, row in other[trial][1].items()
        }
        for step, row in rows.items():
            again = other[trial][1][step]
            largest = max(largest, *(abs(row[name] - again[name]) for name in row))
    return largest


def test_rows_are_those_of_single_trials_within_rounding(tmp_path: Path) -> None:
    found = run(search(), tmp_path / "packed")
    assert farthest(run(search(packed=1), tmp_path / "single"), found) < 1e-5
    record = records(tmp_path / "packed" / "journal.jsonl")[TrialId("random", 0, 1)]
    mate = records(tmp_path / "packed" / "journal.jsonl")[TrialId("random", 0, 0)]
    assert record.last is not None
    assert mate.last is not None
    assert record.last.metrics["cost/seconds"] == mate.last.metrics["cost/seconds"] > 0


@pytest.mark.parametrize(
    "algorithm",
    [SuccessiveHalving(num_trials=4, min_passes=2, reduction=2), Pbt(population=4, num_rounds=2)],
    ids=["halving", "pbt"],
)
def test_rungs_and_rounds_are_packed_too(tmp_path: Path, algorithm: Any) -> None:
    found = run(search(algorithm=algorithm), tmp_path / "packed")
    assert farthest(run(search(algorithm=algorithm, packed=1), tmp_path / "one"), found) < 1e-4


def test_a_pool_gives_the_journal_of_this_process(tmp_path: Path) -> None:
    assert run(search(), tmp_path / "pool", workers=2) == run(search(), tmp_path / "one")


def test_a_trial_that_diverges_fails_alone(tmp_path: Path) -> None:
    one = search(trials=3)
    wild = one.model_dump(mode="json")
    wild["arms"][0]["points"] = [{}, {"optimiser.lr": 1e30}]
    wild["arms"][0]["space"]["optimiser.lr"]["high"] = 1e30
    found = run(Search.model_validate(wild), tmp_path)
    ends = [end for _, _, end in found.values()]
    assert [outcome for outcome, _ in ends] == ["finished", "failed", "finished"]
    assert "DivergedError" in ends[1][1]


class KilledError(BaseException):
    """Stands for a process that dies: nothing catches it."""


def test_a_pack_that_was_cut_off_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run(search(), tmp_path / "whole")
    from tuneparts.search.checkpoints import CheckpointStore

    put = CheckpointStore.put
    for num_puts in (2, 4, 11):  # between lanes, and at the last interval
        left = [num_puts]

        def die(self: Any, *given: Any, _left: list[int] = left, **named: Any) -> None:
            if not _left[0]:
                raise KilledError
            _left[0] -= 1
            put(self, *given, **named)

        monkeypatch.setattr(CheckpointStore, "put", die)
        with pytest.raises(KilledError):
            run(search(), tmp_path / str(num_puts))
        monkeypatch.setattr(CheckpointStore, "put", put)
        assert run(search(), tmp_path / str(num_puts)) == wanted


def test_a_pack_without_memory_is_trained_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run(search(packed=1), tmp_path / "single")
    advance, calls = SupervisedPack.advance, []

    def starve(self: Any, lanes: Any) -> Any:
        calls.append(lanes)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("no memory for so many lanes")
        return advance(self, lanes)

    monkeypatch.setattr(SupervisedPack, "advance", starve)
    found = run(search(), tmp_path / "packed")
    assert len(calls) == 2  # the fourth trial is alone from the start
    assert farthest(wanted, found) < 1e-5
    said = logs.read(Folder(str(tmp_path / "packed" / "trials")), TrialId("random", 0, 2))
    assert any("its pack failed, so it is trained alone: OutOfMemoryError" in one for one in said)


def test_a_pack_that_hung_is_opened(tmp_path: Path) -> None:
    one = search()
    lanes = [
        whole_trial(one.arms[0], seed=0, index=i, values={"optimiser.lr": 0.01 * (i + 1)})
        for i in range(2)
    ]
    setting = TrialSetting.of(one, str(tmp_path))
    execution = execution_of(pack_of(lanes), setting)
    assert isinstance(execution, PackExecution)
    assert execution.step().failure is None
    execution._checkpoints.note_hang(pack_of(lanes), 2)
    assert "HangError" in str(execution.step().failure)
    alone = execution_of(lanes[0], setting)  # the trial itself has not hung
    report = alone.step()
    assert report.failure is None
    assert [row["cost/passes"] for row in report.rows] == [2, 4]


def test_the_selected_trial_of_a_packed_run_becomes_a_model(tmp_path: Path) -> None:
    from tuneparts.executors.worker import restore_learner
    from tuneparts.journal import Journal
    from tuneparts.search.plan import Plan

    one = search()
    run(one, tmp_path)
    journal = Journal(tmp_path / "journal.jsonl")
    chosen = Plan(one, journal).selected("random", 0)
    assert chosen is not None
    learner = restore_learner(one, str(tmp_path / "trials"), chosen, journal.trials[chosen].config)
    pixels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert learner.final_module()(pixels).shape == (2, 10)
    assert learner.finished


def test_reports_of_packs_cross_processes_as_plain_values() -> None:
    import dataclasses

    report = Report(lanes=(Report([{"val/nll": 1.0}], done=True), Report(failure="no")))
    assert Report.of(dataclasses.asdict(report)) == report


@pytest.mark.slow
def test_packed_and_single_trials_end_alike_in_distribution(tmp_path: Path) -> None:
    """Rounding grows with training; what a search reads off its trials does not."""
    scores = {}
    for packed in (1, 8):
        tree = search(packed=packed, trials=16).model_dump(mode="json")
        tree["passes"] = tree["arms"][0]["config"]["passes"] = 150
        tree["arms"][0]["config"]["interval"] = 150
        tree["data"] |= {"num_train": 200, "num_val": 200}
        found = run(Search.model_validate(tree), tmp_path / str(packed))
        scores[packed] = sorted(rows[150]["val/nll"] for _, rows, _ in found.values())
    assert all(math.isclose(*pair, rel_tol=0.05) for pair in zip(*scores.values(), strict=True))
