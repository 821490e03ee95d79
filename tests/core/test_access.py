import asyncio
import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tuneparts.core import access
from tuneparts.core.access import LOOPBACK, TokenAuth, is_loopback, refuse_open, refuse_used
from tuneparts.core.errors import SecurityError, _PortError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_this_machine_is_always_allowed(host: str) -> None:
    assert is_loopback(host)
    refuse_open(host, authenticated=False, forced=False, cure="")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.evil"])
def test_a_wider_door_needs_a_password_or_the_words(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SecurityError, match=r"Do this\..*--without-authentication"):
        refuse_open(host, authenticated=False, forced=False, cure="Do this.")
    refuse_open(host, authenticated=True, forced=False, cure="")
    refuse_open(host, authenticated=False, forced=True, cure="")


def test_a_used_port_is_refused_with_a_free_one() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(_PortError, match=rf"port {port} of 127.0.0.1: Address already") as told:
            refuse_used(LOOPBACK, port)
        assert told.value.exit_code == 1
    refuse_used(LOOPBACK, port)
    with pytest.raises(_PortError, match="port"):
        refuse_used(LOOPBACK, 70_000)


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    return path


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch) -> None:
    for name in (
        "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "MLFLOW_TRACKING_AUTH",
        "TUNEPARTS_RAY_TOKEN_FILE", "TUNEPARTS_TRACKING_LOGIN",
    ):  # fmt: skip
        monkeypatch.setenv(name, "")  # so that what the code sets is undone as well
        monkeypatch.delenv(name)


def test_one_setting_turns_ray_tokens_on(secret, monkeypatch) -> None:
    assert not access.use_ray_token()
    assert "RAY_AUTH_MODE" not in os.environ
    secret.write_text("a-token")
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(secret))
    assert access.use_ray_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(secret)
    assert "a-token" not in os.environ.values()


def test_one_setting_logs_in_to_mlflow(secret, monkeypatch) -> None:
    assert access.tracking_login() is None
    assert not access.use_tracking_login()
    secret.write_text("me:pass:word\n")
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(secret))
    assert access.tracking_login() == access.Login("me", "pass:word")
    assert "pass:word" not in repr(access.tracking_login())
    assert access.use_tracking_login()
    assert os.environ["MLFLOW_TRACKING_AUTH"] == "tuneparts"
    assert "pass:word" not in " ".join(os.environ.values())


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused(secret, monkeypatch, mode: int) -> None:
    secret.write_text("a-token")
    secret.chmod(mode)
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(secret))
    with pytest.raises(SecurityError, match=r"only its owner.*chmod 600"):
        access.use_ray_token()
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("content", ["", "nobody", "me:", ":word"])
def test_a_login_without_both_parts_is_refused(secret, monkeypatch, content: str) -> None:
    secret.write_text(content)
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(secret))
    with pytest.raises(SecurityError, match="file"):
        access.tracking_login()


def test_a_missing_file_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(SecurityError, match="nowhere"):
        access.use_ray_token()


TOKEN = "right-token"


def ask(
    query: str = "", path: str = "/", kind: str = "http", **headers: str
) -> list[dict[str, Any]]:
    """Send a request; returns what the door or the app behind it sends back."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "inside", "path": scope.get("path")})

    async def receive() -> dict[str, Any]:
        raise AssertionError("the door reads no body")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 5000),
    }
    asyncio.run(TokenAuth(app, TOKEN)(scope, receive, send))
    return sent


def is_inside(answer: list[dict[str, Any]]) -> bool:
    return [message["type"] for message in answer] == ["inside"]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", {}),
        ("token=", {}),
        ("token=wrong", {}),
        ("", {"cookie": "tuneparts-5000=wrong"}),
        ("", {"cookie": f"tuneparts-5001={TOKEN}"}),  # the cookie of another page
        ("", {"cookie": "\x00=;;="}),
        ("", {"authorization": "Bearer wrong"}),
        ("", {"authorization": "Bearer"}),
        ("", {"authorization": basic("wrong")}),
        ("", {"authorization": "Basic no-base64"}),
        ("token=r%C3%A9", {"authorization": "Bearer \xe9"}),
    ],
)
def test_without_the_token_nobody_gets_in(query: str, headers: dict[str, str]) -> None:
    start, body = ask(query, **headers)
    assert start["status"] == 401
    assert b"link" in body["body"]
    assert ask(query, kind="websocket", **headers) == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": f"other=1; tuneparts-5000={TOKEN}"},
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": basic(TOKEN)},
    ],
)
def test_with_it_they_do(headers: dict[str, str]) -> None:
    assert is_inside(ask(**headers))
    assert is_inside(ask(kind="websocket", **headers))


def test_the_link_gives_a_cookie_and_leads_on_without_the_token() -> None:
    start, _ = ask(f"run=1&token={TOKEN}&x=", path="/search")
    headers = dict(start["headers"])
    assert start["status"] == 303
    assert headers[b"location"] == b"/search?run=1&x="
    cookie = headers[b"set-cookie"].decode()
    assert cookie.startswith(f"tuneparts-5000={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/a\r\nX: y", "/é"])
def test_the_link_leads_nowhere_else(path: str) -> None:
    start, _ = ask(f"token={TOKEN}", path=path)
    place = dict(start["headers"])[b"location"]
    assert place[:1] == b"/"
    assert place[1:2] not in {b"/", b"\\"}
    assert b"\n" not in place


def test_the_server_itself_may_start() -> None:
    assert is_inside(ask(kind="lifespan"))


def test_a_door_without_a_token_does_not_open(monkeypatch) -> None:
    monkeypatch.delenv(access.VARIABLE, raising=False)
    with pytest.raises(KeyError):
        TokenAuth(lambda *_: None)  # type: ignore[arg-type, return-value]
    assert access.new_token() != access.new_token()
    assert len(access.new_token()) >= 32
