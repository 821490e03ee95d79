"""MLflow's server: who may reach it, with which password, and the page that it sends."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tuneparts.core import access
from tuneparts.core.access import Login
from tuneparts.core.errors import ConfigError, SecurityError
from tuneparts.tracking import guarded, store

LOGIN = Login("chief", "planted-password-1")


@pytest.fixture
def login(tmp_path: Path) -> Path:
    """A file with the login."""
    path = tmp_path / "login"
    path.touch(mode=0o600)
    path.write_text(f"{LOGIN.user}:{LOGIN.password}")
    return path


def plan(uri: str, host: str = "127.0.0.1", **more: Any) -> guarded.ServerCommand:
    return guarded.plan(
        uri, **({"host": host, "port": 5001, "login": None, "forced": False} | more)
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> str:
    """A store in the folder of results, not yet made."""
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_loopback_asks_for_a_token_that_is_not_on_the_command_line(place: str) -> None:
    server = plan(place)
    quiet = ["--uvicorn-opts", "--no-access-log --log-level warning"]
    assert server.command == [*store._ui_command(place, 5001), *quiet, "--app-name", "tuneparts"]
    assert server.token is not None
    assert server.environment[access.VARIABLE] == server.token
    assert server.token not in " ".join(server.command)
    assert plan(place).token != server.token
    found = {point.name: point.value for point in metadata.entry_points(group="mlflow.app")}
    assert found["tuneparts"] == "tuneparts.tracking.guarded:create_app"


def test_a_wide_door_is_refused_unless_forced(place: str) -> None:
    with pytest.raises(SecurityError, match="TUNEPARTS_TRACKING_LOGIN"):
        plan(place, "0.0.0.0")
    server = plan(place, "0.0.0.0", forced=True)
    assert server.command[server.command.index("--host") + 1] == "0.0.0.0"
    assert server.token is None


def test_a_login_travels_in_the_environment_alone(place: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flask_wtf", os)  # only its presence is asked for
    server = plan(place, "0.0.0.0", login=LOGIN)
    assert server.command[-2:] == ["--app-name", "basic-auth"]
    assert LOGIN.password not in " ".join(server.command)
    assert server.environment["MLFLOW_AUTH_ADMIN_PASSWORD"] == LOGIN.password
    written = (tmp_path / "mlflow_auth.ini").read_text()
    assert LOGIN.password not in written
    assert "admin_username = chief" in written
    for name in ("mlflow_auth.ini", "mlflow_auth.db"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    monkeypatch.setitem(sys.modules, "flask_wtf", None)
    with pytest.raises(ConfigError, match=r"pip install 'mlflow\[auth\]'"):
        plan(place, login=LOGIN)


def test_a_database_password_is_not_on_the_command_line() -> None:
    uri = "postgresql://me:planted-password-2@db/mlflow"
    server = plan(uri, forced=True, is_verbose=True)
    assert "planted" not in " ".join(server.command)
    assert server.environment == {"MLFLOW_BACKEND_STORE_URI": uri}


@pytest.fixture
def protected(uri: str, unused_port: int, tmp_path: Path, monkeypatch) -> Iterator[str]:
    pytest.importorskip("flask_wtf", reason="MLflow's basic-auth needs the package Flask-WTF")
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    server = plan(uri, port=unused_port, login=LOGIN)
    process = subprocess.Popen(
        server.command,
        env={**os.environ, **server.environment},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{unused_port}"
    os.killpg(process.pid, 9)
    process.wait()


@pytest.mark.mlflow
@pytest.mark.slow
def test_no_wrong_and_right_login(protected: str, login: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_AUTH", "")
    monkeypatch.delenv("MLFLOW_TRACKING_AUTH")
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(login))
    deadline = time.monotonic() + 120
    while (reason := store.unreachable(protected)) is not None:  # the right one, once it is up
        assert time.monotonic() < deadline, reason
        time.sleep(0.3)
    login.write_text(f"{LOGIN.user}:wrong-password")
    assert "401" in str(store.unreachable(protected))
    assert LOGIN.password not in " ".join(os.environ.values())  # which every trial inherits
    monkeypatch.delenv("TUNEPARTS_TRACKING_LOGIN")
    monkeypatch.delenv("MLFLOW_TRACKING_AUTH")
    reason = str(store.unreachable(protected))
    assert "401" in reason or "not authenticated" in reason


@pytest.mark.mlflow
def test_mlflow_s_client_is_logged_in_without_a_password_in_the_environment(
    login: Path, monkeypatch
) -> None:
    from mlflow.tracking.request_auth.registry import fetch_auth

    monkeypatch.delenv("TUNEPARTS_TRACKING_LOGIN", raising=False)
    assert fetch_auth("tuneparts") is None
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(login))
    auth = fetch_auth("tuneparts")
    assert (auth.username, auth.password) == (LOGIN.user, LOGIN.password)


PAGE = b"<!doctype html><html><head><title>MLflow</title></head><body></body></html>"


def asked(path: str, *, method: str = "GET") -> tuple[dict[bytes, bytes], bytes, list[Any]]:
    """What an app behind `_RunsFirst` answers in two parts, and the headers that it saw."""
    seen: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.extend(scope["headers"])
        headers = [(b"content-length", str(len(PAGE)).encode()), (b"etag", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE[:20], "more_body": True})
        await send({"type": "http.response.body", "body": PAGE[20:]})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"if-none-match", b"1"), (b"host", b"here")]
    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    asyncio.run(guarded._RunsFirst(app)(scope, None, send))  # type: ignore[arg-type]
    body = b"".join(one["body"] for one in sent[1:])
    return dict(sent[0]["headers"]), body, seen


def test_the_page_comes_whole_with_the_choices_made() -> None:
    headers, body, seen = asked("/")
    assert int(headers[b"content-length"]) == len(body)
    assert b"etag" not in headers
    assert seen == [(b"host", b"here")]  # a kept page would be without them
    script = re.search(rb"<head><script>(.*)</script><title>", body)
    assert script is not None
    for key, value in guarded._CHOICES.items():
        assert json.dumps(key).encode() in script[1]
        json.loads(value)  # as MLflow's pages read it


@pytest.mark.parametrize(("path", "method"), [("/ajax-api/2.0/mlflow", "GET"), ("/", "POST")])
def test_nothing_else_changes(path: str, method: str) -> None:
    headers, body, seen = asked(path, method=method)
    assert body == PAGE
    assert headers[b"etag"] == b"1"
    assert len(seen) == 2
