"""Planted secrets do not reach the store, its artifacts, the log or the card of a run."""

from pathlib import Path

import pytest

from tuneparts.core.errors import SecurityError
from tuneparts.search.card import RunCard
from tuneparts.search.events import Row, TrialEnded, TrialId, TrialStarted
from tuneparts.search.storage import Folder, refuse_keys
from tuneparts.tracking import frames
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker

TOKEN, PASSWORD = "planted-token-value", 'planted"pass\\word'


def written(folder: Path) -> bytes:
    """What the tracker wrote; the journal is what it was given."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    return b"\n".join(path.read_bytes() for path in files)


@pytest.mark.mlflow
def test_nothing_planted_reaches_the_store(
    uri: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog, feed
) -> None:
    import json

    monkeypatch.setenv("PLANTED_TOKEN", TOKEN)
    monkeypatch.setenv("PLANTED_PASSWORD", PASSWORD)
    card = SearchCard(
        RunCard(
            "toy",
            scale="smoke",
            digest="d1gest",
            commit=f"from https://me:{TOKEN}@host",
            versions={"python": TOKEN},
        ),
        resolved=json.dumps({"notes": f"ask {PASSWORD} or {TOKEN}", "api_key": "short"}),
        tags={"lab": f"see {TOKEN}", "db_password": "tiny"},
    )
    tracker = Tracker(uri, folder=folder, search=card, interval=0.01)
    trial = TrialId("random", 0, 0)
    config = {"lr": 0.1, "path": f"/data/{TOKEN}", "inner": {"password": "tiny"}, TOKEN: 1}
    message = f"could not reach postgresql://me:{PASSWORD}@db with {TOKEN}"
    feed(
        tracker,
        [
            TrialStarted(trial, config, 1.0),
            Row(trial, 1, {"val/nll": 0.5, f"x/{TOKEN}": 1.0}, 2.0),
            TrialEnded(trial, "failed", 3.0, message),
        ],
    )
    tracker.describe(f"ask {TOKEN}")
    tracker.tag_trial(trial, {"selected": f"by {TOKEN}"})
    problems = tracker.close()

    everything = written(tmp_path) + caplog.text.encode() + "\n".join(problems).encode()
    for form in (TOKEN, PASSWORD, json.dumps(PASSWORD)[1:-1]):
        assert form.encode() not in everything
    assert b'"short"' not in everything
    found = frames.trials(uri, str(tracker.parent_run_id)).iloc[0]
    assert found["param.lr"] == 0.1
    assert found["param.path"] == "/data/***"
    assert found["param.inner.password"] == "***"


@pytest.mark.parametrize(
    "uri", ["s3://key:planted@bucket/x", "s3://bucket/x?secret_key=planted", "gs://u:planted@b"]
)
def test_storage_with_a_key_in_it_is_refused_without_repeating_it(uri: str) -> None:
    for take in (refuse_keys, Folder):
        with pytest.raises(SecurityError, match="carries no key") as caught:
            take(uri)
        assert "planted" not in str(caught.value)
