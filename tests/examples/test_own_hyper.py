"""A hyper of one's own is learnt, followed, searched, reported and served."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tuneparts
from tuneparts.core import schema
from tuneparts.executors import Place, execute
from tuneparts.results.figures._hypers import hypers
from tuneparts.search import load, runs
from tuneparts.search.code import _importable
from tuneparts.search.events import TrialId
from tuneparts.search.journal import records
from tuneparts.testing import HyperContract

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_hyper.py"
FACTS = {"command": "", "commit": "", "versions": {}, "storage": None}


@pytest.fixture(autouse=True)
def _own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_learnt_followed_and_searched(tmp_path: Path, workers: int) -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    assert execute(search, folder=tmp_path, place=Place("local", workers=workers)) == "done"
    found = records(tmp_path / "journal.jsonl")
    assert [record.end and record.end.outcome for record in found.values()] == ["finished"] * 4
    learnt, retrained = (found[TrialId(arm, 0, 0)] for arm in ("learnt", "retrained"))
    assert learnt.last is not None
    spread = learnt.last.metrics["hyper/gain"]
    assert spread != 0.1
    assert retrained.config["hypers"]["gain"] == {"kind": "own_hyper:Gain", "spread": spread}
    drawn = [found[TrialId("random", 0, i)].config["hypers"] for i in range(2)]
    assert len({one["gain"]["spread"] for one in drawn}) == 2
    assert len({one["label_smoothing"]["rate"] for one in drawn}) == 2


def test_it_is_reported_drawn_and_served(tmp_path: Path) -> None:
    made = runs.create(tmp_path, load.load(str(EXAMPLE), scale="smoke"), **FACTS)
    execute(made.search, folder=made.folder, place=Place("local", workers=1))
    results = tuneparts.Results(runs.Run(made.root, made.name))
    assert results.trials["hyper/gain"].notna().all()
    assert results.trials["hyper/label_smoothing"].notna().sum() == 2
    drawing: Any = hypers(results)
    assert set(drawing.data["metric"]) == {"hyper/gain", "hyper/label_smoothing"}
    learner: Any = results.learner(TrialId("retrained", 0, 0))
    x = torch.as_tensor(learner.context.task.test.inputs[:2])
    served = learner.final_module()(x)
    assert torch.equal(served, learner.final_module()(x))
    learner.hypers._names["inputs"] = []
    assert not torch.equal(served, learner.final_module()(x))


def test_it_keeps_the_contract() -> None:
    with _importable(EXAMPLE.parent):
        from own_hyper import Gain

        class Contract(HyperContract):
            hyper = Gain(spread=0.5)

        for law in dir(Contract):
            if law.startswith("test_"):
                getattr(Contract(), law)()
