"""Who gets past the doorkeeper of a web page, and who does not."""

import asyncio
import base64
from typing import Any

import pytest

from tuneparts.core import doorkeeper
from tuneparts.core.doorkeeper import Doorkeeper

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
    asyncio.run(Doorkeeper(app, TOKEN)(scope, receive, send))
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
    monkeypatch.delenv(doorkeeper.VARIABLE, raising=False)
    with pytest.raises(KeyError):
        Doorkeeper(lambda *_: None)  # type: ignore[arg-type, return-value]
    assert doorkeeper.new_token() != doorkeeper.new_token()
    assert len(doorkeeper.new_token()) >= 32
