import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException, RestException
from requests import HTTPError, Response
from sqlalchemy.exc import OperationalError

from tuneparts.core.errors import ConfigError
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId, TrialRunning
from tuneparts.tracking import store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker


def test_the_default_is_a_sqlite_file_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    monkeypatch.delenv("TUNEPARTS_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = store.resolve()
    assert uri == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert store.artifact_root(uri) == f"file://{tmp_path / 'artifacts'}"
    assert not store.exists(uri)


def test_a_relative_file_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.resolve("sqlite:///here.db") == f"sqlite:///{tmp_path / 'here.db'}"


@pytest.mark.parametrize("uri", ["", "mlruns", "./mlruns", "file:///tmp/mlruns", "/tmp/mlruns"])
def test_the_file_store_is_refused_with_the_cure(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"file store is not supported.*sqlite:///"):
        store.resolve(uri)


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_sqlite_in_memory_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="a SQLite store is a file"):
        store.resolve(uri)


@pytest.mark.parametrize(
    "uri", ["http://host:5000", "https://host/x", "postgresql+psycopg2://u:p@h/db"]
)
def test_servers_and_databases_pass(uri: str) -> None:
    assert store.resolve(uri) == uri
    assert store.exists(uri)


def test_a_server_chooses_where_artifacts_go() -> None:
    assert store.artifact_root("http://host") is None


def test_the_ui_of_a_database_is_served_on_this_machine_only(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = store.ui_command(uri, 5001)
    assert isinstance(command, list)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"
    assert command[command.index("--backend-store-uri") + 1] == uri


def test_the_ui_of_a_server_is_the_server() -> None:
    assert store.ui_command("http://host:5000", 1) == "http://host:5000"


def test_the_environment_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    store.quieten()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_importing_the_room_does_not_import_mlflow() -> None:
    code = (
        "import sys; import tuneparts.tracking.tracker, tuneparts.tracking.frames; "
        "sys.exit('mlflow' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.mlflow
def test_a_new_store_is_made_without_a_word_and_without_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path / 'deep' / 'mlflow.db'}"
    store.prepare(uri)
    store.prepare(uri)
    assert store.unreachable(uri) is None
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("mlflow.store.db.utils").level == logging.WARNING


@pytest.mark.mlflow
def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database, but long enough to be read as one")
    with pytest.raises(ConfigError, match="file is not a database"):
        store.prepare(f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.mark.mlflow
def test_a_server_that_is_not_there_is_named(unused_port: int) -> None:
    reason = store.unreachable(f"http://127.0.0.1:{unused_port}")
    assert reason is not None
    assert str(unused_port) in reason


def http_error(status: int) -> HTTPError:
    response = Response()
    response.status_code = status
    return HTTPError(response=response)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        TimeoutError(),
        OSError(28, "No space left on device"),
        OperationalError("insert", {}, Exception("database is locked")),
        MlflowException("API request to http://x failed with exception refused"),
        MlflowException(
            "API request to endpoint /x failed with error code 404 != 200. Response body: proxy",
            error_code=5,
        ),
        RestException({"error_code": "TEMPORARILY_UNAVAILABLE", "message": ""}),
        RestException({"error_code": "INTERNAL_ERROR", "message": ""}),
        RestException({"error_code": "UNAUTHENTICATED", "message": ""}),
        http_error(503),
    ],
)
def test_waiting_cures(error: Exception) -> None:
    assert store.is_curable(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("report.html"),
        TypeError("a bug"),
        MlflowException.invalid_parameter_value("name"),
        RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": ""}),
        RestException({"error_code": "INVALID_PARAMETER_VALUE", "message": ""}),
        http_error(404),
    ],
)
def test_waiting_is_in_vain(error: Exception) -> None:
    assert not store.is_curable(error)


def test_a_run_that_is_gone() -> None:
    assert store.is_gone(RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": ""}))
    assert not store.is_gone(MlflowException.invalid_parameter_value("name"))
    assert not store.is_gone(ConnectionError())


def test_each_kind_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    problems = store.Problems()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            problems.add("left out", f"number {number}", 2)
        problems.add("other", "reason")
    assert problems.lines() == ["left out (6): number 0", "other (1): reason"]
    assert len(caplog.records) == 2


@pytest.mark.mlflow
def test_a_search_hears_of_a_store_that_is_none(tmp_path: Path) -> None:
    """The thread of the tracker opens it; the driver must not train for hours before it knows."""
    (tmp_path / "mlflow.db").write_text("this is no database, but long enough to be read as one")
    tracker = Tracker(
        f"sqlite:///{tmp_path / 'mlflow.db'}",
        folder=tmp_path / "run",
        search=SearchCard(RunCard("toy", scale="smoke")),
        interval=0.01,
    )
    assert tracker.flush()
    with pytest.raises(ConfigError, match="file is not a database"):
        tracker.on_event(TrialRunning(TrialId("a", 0, 0), 0.0))
    assert "nothing is tracked" in tracker.close("FAILED")[0]


def test_a_process_whose_folder_is_gone_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    store._leave_removed_folder()
    assert Path.cwd() == tmp_path / "gone"
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    store._leave_removed_folder()
    assert Path.cwd() == tmp_path


def test_a_new_database_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        store.prepare(f"sqlite:///{tmp_path}/mlflow.db")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mlflow.db").stat().st_mode) == 0o664
