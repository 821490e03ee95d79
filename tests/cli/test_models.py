"""From the checkpoints of a finished search to a version in the registry."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tuneparts import settings
from tuneparts.cli import answers, models
from tuneparts.errors import UnknownNameError
from tuneparts.search import load, runs
from tuneparts.tracking import frames
from tuneparts.tracking.models import _store
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow


def test_the_registered_net_scores_what_its_trial_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_here: Callable[..., Iterator[None]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    import mlflow

    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    for name in ("TUNEPARTS_TRACKING_URI", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    search = load.load("rotated_digits", scale="smoke")
    run = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    uri = settings.current().tracking_uri
    tracker = Tracker(uri, folder=run.folder, search=answers.card(run, search), interval=0.01)
    for _ in run_here(run, tracker):
        pass
    assert tracker.close() == []

    with pytest.raises(UnknownNameError, match="nothing"):
        models.register(None, arm="nothing", as_name=None)
    models.register(None, arm="none", as_name="plain")
    models.register(None, arm="none", as_name="plain")
    assert "models:/plain/2" in capsys.readouterr().out
    trials = frames.trials(uri, str(tracker.parent_run_id)).set_index("arm")
    with _store(uri):
        net = mlflow.pytorch.load_model("models:/plain/1")
    test = search.data.load().test
    found = net(torch.from_numpy(test.inputs.copy())).argmax(1).numpy() == test.labels
    assert found.mean() == pytest.approx(trials["test/accuracy"]["none"], abs=1e-12)
