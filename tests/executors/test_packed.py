"""Packed searches: the same rows, whatever goes wrong on the way."""

import math
import os
import uuid
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from tests.executors.test_local import facts
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.executors import Place, execute, logs
from tuneparts.executors._driver import Groups
from tuneparts.executors._packed import PackExecution
from tuneparts.executors.setting import TrialSetting
from tuneparts.executors.worker import reports_of
from tuneparts.hypers.config import Augmentation
from tuneparts.methods.baselines.config import PosthocLaplace, Standard, ValidationSet
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.search.algorithms.base import RandomSearch, whole_trial
from tuneparts.search.algorithms.halving import SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.arm import Arm
from tuneparts.search.check import check
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Group
from tuneparts.search.space import Choice, Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.search.storage import Folder
from tuneparts.training.config import Method, Runtime
from tuneparts.training.pack import Pack

AFFINE = {"affine": {"kind": "lila", "rotation": 0.3}, "samples": 2}
SPACE = {
    "optimiser.lr": Uniform(low=1e-3, high=1e-1, log=True),
    "hypers.affine.rotation": Uniform(low=0.0, high=3.0),
}


class Branches(nn.Linear):
    """Its code depends on its input's values, which nothing can map."""

    def forward(self, x: Tensor) -> Tensor:
        h = super().forward(x.flatten(1))
        return h if float(h.detach().sum()) > 0 else -h


def branches(in_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return Branches(math.prod(in_shape), num_outputs)


class Deadly(Augmentation):
    """Ends the process of a worker, once in a folder, after three batches."""

    folder: str = ""
    driver: int = 0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        mark = Path(self.folder)
        count = len(list(mark.glob("batch-*")))
        (mark / f"batch-{uuid.uuid4().hex}").touch()  # two processes may count alike
        if count == 3 and os.getpid() != self.driver:
            os._exit(1)
        return super().__call__(x, generator)


class DeadlyConfig(Standard):
    method: Literal["tests.executors.test_packed:DeadlyConfig"] = (  # type: ignore[assignment]
        "tests.executors.test_packed:DeadlyConfig"
    )
    augmentation: Deadly = Deadly()


def search(*, packed: int = 3, trials: int = 4, deadly: Any = None, **fields: Any) -> Search:
    values = {"net": {"name": "mlp", "widths": (4,)}, "hypers": AFFINE, "batch_size": 10}
    if deadly is None:
        config = Standard(steps=8, interval=2, **values)
    else:
        config = DeadlyConfig(steps=8, interval=2, augmentation=deadly, **values)
    made = {"algorithm": RandomSearch(num_trials=trials), "space": SPACE, **fields}
    arm = Arm(name="random", config=config, packed=packed, **made)
    return Search(
        name="packed",
        question="Are packed trials the same?",
        scale=Scale.SMOKE,
        data=Data(name="digits", num_train=20, num_val=10, num_test=10),
        metric="val/nll",
        steps=8,
        seeds=(0,),
        arms=(arm,),
    )


def run(one: Search, folder: Path, **options: Any) -> dict[str, Any]:
    place = Place("local", workers=options.pop("workers", 1))
    assert execute(one, folder=folder, place=place, **options) == "done"
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
    [SuccessiveHalving(num_trials=4, min_steps=2, reduction=2), Pbt(population=4, num_rounds=2)],
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
    put = CheckpointStore.put
    for num_puts in (2, 4, 11):  # between trials, and at the last interval
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


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_pack_that_loses_its_process_gives_its_trials_back_one_by_one(
    tmp_path: Path, executor: Any, request: pytest.FixtureRequest
) -> None:
    if executor == "ray":
        request.getfixturevalue("local_ray")
    whole = run(search(trials=3), tmp_path / "packed")
    wanted = run(search(packed=1, trials=3), tmp_path / "single")
    (tmp_path / "marks").mkdir()
    deadly = Deadly(folder=str(tmp_path / "marks"), driver=os.getpid())
    place = Place(executor, workers=2 if executor == "local" else None)
    made = execute(search(trials=3, deadly=deadly), folder=tmp_path / "run", place=place)
    assert made == "done"
    found = facts(tmp_path / "run")
    for trial, (_, rows, end) in found.items():
        assert end[0] == "finished"
        assert rows[2] == whole[trial][1][2]  # from the pack, which died in its second interval
        assert all(
            row[name] == pytest.approx(value, abs=1e-5)
            for step, row in rows.items()
            for name, value in wanted[trial][1][step].items()
        )
    # Three of a pack, the one that kills it, and six of each trial by itself.
    assert len(list((tmp_path / "marks").iterdir())) == 4 + 3 * 6


def test_a_pack_without_memory_is_trained_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run(search(packed=1), tmp_path / "single")
    advance, calls = Pack.advance, []

    def starve(self: Pack) -> Any:
        calls.append(sorted(self._learners))
        if len(calls) == 2:
            raise torch.OutOfMemoryError("no memory for so many slots")
        return advance(self)

    monkeypatch.setattr(Pack, "advance", starve)
    found = run(search(), tmp_path / "packed")
    assert calls == [[0, 1, 2]] * 2 + [[0]] * 4  # the fourth trial has a pack of its own
    assert farthest(wanted, found) < 1e-5
    said = logs.read(Folder(str(tmp_path / "packed" / "trials")), TrialId("random", 0, 2))
    assert any("so it is trained by itself: OutOfMemoryError" in one for one in said)


def test_after_a_pack_hung_its_trials_train_by_themselves(tmp_path: Path) -> None:
    one = search()
    segments = [
        whole_trial(one.arms[0], seed=0, index=i, values={"optimiser.lr": 0.01 * (i + 1)})
        for i in range(2)
    ]
    setting = TrialSetting.of(one, str(tmp_path))
    execution = PackExecution(Group(tuple(segments), 3), setting)
    assert not any(report.done for report in execution.step())
    CheckpointStore(Folder(str(tmp_path))).note_hang(segments[0], 2, of="pack-")
    reports = execution.step()
    assert all(report.alone and "HangError" in str(report.failure) for report in reports)
    (report,) = next(reports_of(Group((segments[0],)), setting))  # the trial has not hung
    assert report.failure is None
    assert [row["cost/steps"] for row in report.rows] == [2, 4]


def test_the_selected_trial_of_a_packed_run_becomes_a_model(tmp_path: Path) -> None:
    from tuneparts.executors.setting import restore_learner
    from tuneparts.search.journal import Journal
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


def taken(groups: Groups) -> list[list[int]]:
    found = []
    while (group := groups.take()) is not None:
        found.append([segment.trial.index for segment in group.segments])
    return found


def test_a_pack_is_of_trials_that_wait_and_can_be_trained_together(tmp_path: Path) -> None:
    batches = {**SPACE, "batch_size": Choice(options=(4, 8))}
    one = search(trials=9, packed=3, space=batches)
    plan = Plan(one, Journal(tmp_path / "journal.jsonl"))
    found = taken(Groups(plan))
    assert sorted(index for group in found for index in group) == list(range(9))
    sizes = {trial.index: made.config["batch_size"] for trial, made in plan.journal.trials.items()}
    for group in found:
        assert len({sizes[index] for index in group}) == 1
        assert len({index % 3 for index in group}) == len(group)
    assert max(map(len, found)) > 1


def test_at_once_counts_the_trials_of_packs(tmp_path: Path) -> None:
    plan = Plan(search(trials=4, at_once=2), Journal(tmp_path / "journal.jsonl"))
    assert taken(Groups(plan)) == [[0, 1]]


def test_trials_that_meet_others_have_the_same_journal(tmp_path: Path) -> None:
    assert run(search(at_once=2), tmp_path / "two") == run(search(), tmp_path / "three")


@pytest.mark.parametrize("config", [Pwfn(), PosthocLaplace(), ValidationSet(), Partitioned()])
def test_other_methods_are_refused_by_name(config: Method) -> None:
    method = config.model_dump()["method"]
    with pytest.raises(ValueError, match=rf"packed = 4: .*`{method}`; leave it out"):
        Arm(name="alone", config=config, packed=4)


def test_a_net_that_cannot_be_packed_is_refused_before_anything_runs() -> None:
    tree = search().model_dump(mode="json")
    tree["arms"][0]["config"]["net"] = {"name": "tests.executors.test_packed:branches"}
    with pytest.raises(ConfigError, match=r"`random` cannot be packed.*Leave its `packed` out"):
        check(Search.model_validate(tree))


def test_a_pack_has_no_runtime_of_its_own_or_of_the_search() -> None:
    tree = search().model_dump(mode="json")
    tree["arms"][0]["config"].pop("runtime")
    said = r"arms\['random'\].packed: has a `runtime`"
    with pytest.raises(ValueError, match=said):
        Search.model_validate({**tree, "runtime": Runtime(precision="bf16")})
    tree["arms"][0]["config"]["runtime"] = {"precision": "bf16"}
    with pytest.raises(ValueError, match=said):
        Search.model_validate(tree)


@pytest.mark.slow
def test_packed_and_single_trials_end_alike_in_distribution(tmp_path: Path) -> None:
    """Rounding grows with training; what a search reads off its trials does not."""
    scores = {}
    for packed in (1, 8):
        tree = search(packed=packed, trials=16).model_dump(mode="json")
        tree["steps"] = tree["arms"][0]["config"]["steps"] = 150
        tree["arms"][0]["config"]["interval"] = 150
        tree["data"] |= {"num_train": 200, "num_val": 200}
        found = run(Search.model_validate(tree), tmp_path / str(packed))
        scores[packed] = sorted(rows[150]["val/nll"] for _, rows, _ in found.values())
    assert all(math.isclose(*pair, rel_tol=0.05) for pair in zip(*scores.values(), strict=True))
