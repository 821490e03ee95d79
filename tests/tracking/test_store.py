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
from tuneparts.search.events import TrialId, TrialRunning
from tuneparts.tracking import store


def test_the_default_is_a_sqlite_file_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    monkeypatch.delenv("TUNEPARTS_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = store.resolve()
    assert uri == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert store._artifact_root(uri) == f"file://{tmp_path / 'artifacts'}"
    assert not store.exists(uri)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        *((uri, "file store is not supported.*sqlite:///") for uri in ("", "mlruns", "file:///x")),
        *((uri, "store is a file") for uri in ("sqlite://", "sqlite:///", "sqlite:///:memory:")),
    ],
)
def test_what_is_no_store_is_refused(uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        store.resolve(uri)


def test_servers_and_databases_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("http://host:5000", "https://host/x", "postgresql+psycopg2://u:p@h/db"):
        assert store.resolve(uri) == uri
        assert store.exists(uri)
    assert store._artifact_root("http://host") is None  # the server's own choice
    monkeypatch.chdir(tmp_path)
    assert store.resolve("sqlite:///here.db") == f"sqlite:///{tmp_path / 'here.db'}"


def test_the_ui_of_a_database_is_served_on_this_machine_only(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = store._ui_command(uri, 5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"
    assert command[command.index("--backend-store-uri") + 1] == uri


def test_the_environment_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    store._quieten()
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
    path = tmp_path / "deep" / "mlflow.db"
    before = os.umask(0o002)
    try:
        for _ in range(2):
            store.client(f"sqlite:///{path}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664  # as open as the umask says
    assert store.unreachable(f"sqlite:///{path}") is None
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("mlflow.store.db.utils").level == logging.WARNING


@pytest.mark.mlflow
def test_a_server_that_is_not_there_is_named(unused_port: int) -> None:
    reason = store.unreachable(f"http://127.0.0.1:{unused_port}")
    assert reason is not None
    assert str(unused_port) in reason


def http_error(status: int) -> HTTPError:
    response = Response()
    response.status_code = status
    return HTTPError(response=response)


def rest_error(code: str) -> RestException:
    return RestException({"error_code": code, "message": ""})


PROXY = "API request to endpoint /x failed with error code 404 != 200. Response body: proxy"


@pytest.mark.parametrize(
    ("error", "is_curable"),
    [
        (ConnectionError("refused"), True),
        (TimeoutError(), True),
        (OSError(28, "No space left on device"), True),
        (OperationalError("insert", {}, Exception("database is locked")), True),
        (MlflowException("API request to http://x failed with exception refused"), True),
        (MlflowException(PROXY, error_code=5), True),
        (rest_error("TEMPORARILY_UNAVAILABLE"), True),
        (rest_error("INTERNAL_ERROR"), True),
        (rest_error("UNAUTHENTICATED"), True),
        (http_error(503), True),
        (FileNotFoundError("report.html"), False),
        (TypeError("a bug"), False),
        (MlflowException.invalid_parameter_value("name"), False),
        (rest_error("RESOURCE_DOES_NOT_EXIST"), False),
        (rest_error("INVALID_PARAMETER_VALUE"), False),
        (http_error(404), False),
    ],
)
def test_which_errors_waiting_cures(error: Exception, is_curable: bool) -> None:
    assert store._is_retryable(error) is is_curable


def test_each_kind_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    problems = store._Problems()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            problems.add("left out", f"number {number}", 2)
        problems.add("other", "reason")
    assert problems.lines() == ["left out (6): number 0", "other (1): reason"]
    assert len(caplog.records) == 2


@pytest.mark.mlflow
def test_a_search_stops_at_a_store_that_is_none(toy, tmp_path: Path) -> None:
    """The thread of the tracker opens it; the driver must not train for hours before it knows."""
    uri = f"sqlite:///{tmp_path / 'other.db'}"
    (tmp_path / "other.db").write_text("this is no database, but long enough to be read as one")
    with pytest.raises(ConfigError, match="file is not a database"):
        store.client(uri)
    tracker = toy.tracker(uri)
    assert tracker.flush()
    with pytest.raises(ConfigError, match="file is not a database"):
        tracker.on_event(TrialRunning(TrialId("a", 0, 0), 0.0))
    assert "nothing is tracked" in tracker.close("FAILED")[0]


def test_a_process_whose_folder_is_gone_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    store._quieten()
    assert Path.cwd() == tmp_path / "gone"
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    store._quieten()
    assert Path.cwd() == tmp_path
