"""MLflow's page as our server sends it: with the view for trained models chosen."""

import asyncio
import json
import re
from typing import Any

import pytest

from tuneparts.tracking.guarded import _CHOICES, _RunsFirst

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
    asyncio.run(_RunsFirst(app)(scope, None, send))  # type: ignore[arg-type]
    body = b"".join(one["body"] for one in sent[1:])
    return dict(sent[0]["headers"]), body, seen


def test_the_page_comes_whole_with_the_choices_made() -> None:
    headers, body, seen = asked("/")
    assert int(headers[b"content-length"]) == len(body)
    assert b"etag" not in headers
    assert seen == [(b"host", b"here")]  # a kept page would be without them
    script = re.search(rb"<head><script>(.*)</script><title>", body)
    assert script is not None
    for key, value in _CHOICES.items():
        assert json.dumps(key).encode() in script[1]
        json.loads(value)  # as MLflow's pages read it


@pytest.mark.parametrize(("path", "method"), [("/ajax-api/2.0/mlflow", "GET"), ("/", "POST")])
def test_nothing_else_changes(path: str, method: str) -> None:
    headers, body, seen = asked(path, method=method)
    assert body == PAGE
    assert headers[b"etag"] == b"1"
    assert len(seen) == 2
