"""Asks whoever opens one of our web pages for its token (MLflow's UI, the dashboard).

A port on loopback is open to every user of the machine. So a server that we start makes a token,
and prints it as a part of the link: who opens the link gets a cookie, and is not asked again.
Programs send the token as `Authorization: Bearer TOKEN`, or as the password of a basic login.
"""

import base64
import binascii
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

VARIABLE = "TUNEPARTS_PAGE_TOKEN"
"""How the token reaches the server's process; only its user can read its environment."""
_SORRY = (
    b"This page asks for a token, because other users of this machine can reach it too.\n"
    b"Open the whole link that the command printed; it ends in the token.\n"
)


def new_token() -> str:
    """Make a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


class Doorkeeper:
    """An ASGI application in front of another one, which lets in who knows the token.

    Args:
        app: what it guards.
        token: the secret; that of the environment when not given.

    Raises:
        KeyError: There is no token; an open door would be worse.
    """

    def __init__(self, app: App, token: str | None = None) -> None:
        self._app = app
        self._token = os.environ[VARIABLE] if token is None else token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:  # start and end of the server
            await self._app(scope, receive, send)
            return
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if scope["type"] == "http" and given is not None and self._is_right(given):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            await self._welcome(scope, rest, send)
        elif any(map(self._is_right, _shown(scope, self._cookie(scope)))):
            await self._app(scope, receive, send)
        else:
            await _refuse(scope, send)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _cookie(self, scope: Scope) -> str:
        """Its name; browsers send cookies to all ports of a host, so it has the port in it."""
        return f"tuneparts-{(scope.get('server') or ('', 0))[1]}"

    async def _welcome(self, scope: Scope, rest: str, send: Send) -> None:
        """Give the cookie, and send the browser on to the page without the token in its address."""
        # One slash: a browser takes `//host` for another machine.
        place = "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else "")
        place = place.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")
        cookie = f"{self._cookie(scope)}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        headers = {"Location": place, "Set-Cookie": cookie, "Referrer-Policy": "no-referrer"}
        await _answer(send, 303, headers)


def _shown(scope: Scope, cookie: str) -> list[str]:
    """What a request shows as its token: in the cookie, or in the header of a program."""
    shown: list[str] = []
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        if name == b"cookie":
            try:
                found = SimpleCookie(text).get(cookie)
            except CookieError:
                continue
            shown += [found.value] if found is not None else []
        elif name == b"authorization":
            kind, _, rest = text.partition(" ")
            if kind.lower() == "bearer":
                shown.append(rest.strip())
            elif kind.lower() == "basic":
                shown.append(_password(rest))
    return shown


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await _answer(send, 401, {"Content-Type": "text/plain; charset=utf-8"}, _SORRY)


async def _answer(send: Send, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    pairs += [(b"cache-control", b"no-store"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
