"""A driver that comes second leaves everything as it is."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tuneparts.cli import drive
from tuneparts.errors import BusyError
from tuneparts.run import lock
from tuneparts.search import runs


def test_a_second_driver_does_not_touch_the_store(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = runs.Run(tmp_path, "null/20260101-000000-0123456789ab")
    run.folder.mkdir(parents=True)
    (run.folder / "run.json").write_text(json.dumps({"search": {}}))
    # Elsewhere: the thread that holds the lock may enter it again.
    with lock(run.folder), ThreadPoolExecutor(1) as elsewhere:
        second = elsewhere.submit(drive._drive, run, None, None)
        with pytest.raises(BusyError, match="one driver at a time"):
            second.result()
    assert sorted(path.name for path in run.folder.iterdir()) == ["lock", "run.json"]
    assert not (tmp_path / "mlflow.db").exists()
