"""From the checkpoints of a finished search to a version in the registry."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tuneparts
from tuneparts.cli import _reading, _running
from tuneparts.core import settings
from tuneparts.core.errors import DataMissingError, UnknownNameError
from tuneparts.results.running import tracking_card
from tuneparts.search import load, runs
from tuneparts.search.events import Row, TrialEnded, TrialId, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.search.spec import Search
from tuneparts.tracking.models import _store, logged
from tuneparts.tracking.tracker import Tracker


def create(results: Path, search: Search) -> runs.Run:
    return runs.create(results, search, command="", commit="", versions={}, storage=None)


@pytest.mark.mlflow
def test_the_registered_net_has_the_logits_that_its_trial_was_scored_by(
    results: Path,
    run_here: Callable[..., Iterator[None]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import mlflow

    search = load.load("rotated_digits", scale="smoke")
    run = create(results, search)
    uri = settings.current().tracking_uri
    tracker = Tracker(uri, folder=run.folder, search=tracking_card(run), interval=0.01)
    for _ in run_here(run, tracker):
        pass
    assert tracker.close() == []

    with pytest.raises(UnknownNameError, match="nothing"):
        _reading.register(None, arm="nothing", name=None)
    _reading.register(None, arm="none", name="plain")
    _reading.register(None, arm="none", name="plain")
    told = capsys.readouterr().out
    assert "models:/plain/2" in told
    trials = tuneparts.load().trials.set_index("arm")
    with _store(uri):
        net = mlflow.pytorch.load_model("models:/plain/1")
    lines = told[told.rindex("import mlflow") :]  # as one pastes them, elsewhere
    (results / "elsewhere").mkdir()
    monkeypatch.chdir(results / "elsewhere")
    names: dict[str, Any] = {}
    try:
        exec(lines, names)
    finally:
        mlflow.set_tracking_uri(None)
    assert isinstance(names["net"], torch.nn.Module)
    assert list((results / "elsewhere").iterdir()) == []
    test = search.load_data(draw=0).test
    found = net(torch.from_numpy(test.inputs.copy())).argmax(1).numpy() == test.labels
    assert found.mean() == pytest.approx(trials["test/accuracy"]["none"], abs=1e-12)


def test_the_best_arm_is_chosen_by_validation_and_never_by_test_scores(results: Path) -> None:
    search = load.load("rotated_digits", scale="smoke", arms=["partitioned", "none"], seeds=[0])
    search = search.model_copy(update={"references": ()})
    run = create(results, search)
    journal = Journal(run.folder / "journal.jsonl")
    scores = {"partitioned": (0.75, 0.5), "none": (0.5, 0.875)}
    for arm, (val, test) in scores.items():
        trial = TrialId(arm, 0, 0)
        journal.append(TrialStarted(trial, search.arm(arm).config.model_dump(mode="json"), 0.0))
        journal.append(Row(trial, 20, {"val/accuracy": val, "test/accuracy": test}, 1.0))
        journal.append(TrialEnded(trial, "finished", 2.0))
    journal.close()
    found = tuneparts.load()
    assert found.best_arm() == "partitioned"
    assert found.answer.startswith("none has the highest mean test accuracy")
    with pytest.raises(DataMissingError, match="tuneparts sync"):
        _reading.register(None, arm=None, name=None)


def test_without_a_validation_score_an_arm_must_be_named(results: Path) -> None:
    search = load.load("rotated_digits", scale="smoke", arms=["none"], seeds=[0])
    run = create(results, search)
    with pytest.raises(DataMissingError, match="Name an arm"):
        tuneparts.load(run.name).best_arm()


@pytest.mark.mlflow
def test_a_search_that_keeps_models_logs_the_net_of_each_selected_trial(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = results / "keeping.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from tuneparts.search import load\n"
        "def search(scale):\n"
        "    found = load.load('rotated_digits', scale=scale, arms=['none'], seeds=[0])\n"
        "    return found.replaced({'keep_models': True, 'name': 'keeping'})\n"
    )
    _running.search(str(file), scale="smoke", local=True)
    found = tuneparts.load()
    (run_id,) = found.run_ids.values()
    assert logged(settings.current().tracking_uri, run_id) is not None
