"""Who may reach what we serve, and the two secrets that this project can hold.

A server listens on this machine alone, unless it asks for a password. Every user of the machine
reaches its loopback, so a page that we serve there (MLflow's UI, the dashboard) asks for a token,
which is a part of the printed link: who opens the link gets a cookie, and is not asked again.
Programs send it as `Authorization: Bearer TOKEN`, or as a basic login's password.

The secrets are Ray's cluster token and the login of an MLflow server. Each is switched on by one
setting that names a file, never by a value: a value in the environment shows in process listings.
"""

import base64
import hmac
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tuneparts.core import settings
from tuneparts.core.errors import SecurityError, _PortError

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


def refuse_open(host: str, *, authenticated: bool, forced: bool, cure: str) -> None:
    """Refuse to serve others without a password; `cure` says how to switch authentication on."""
    if not (is_loopback(host) or authenticated or forced):
        raise SecurityError(
            f"`{host}`: a server that others can reach asks for a password, and this would not. "
            f"{cure} Or stay on {LOOPBACK} and tunnel: `ssh -L PORT:{LOOPBACK}:PORT`. "
            "To serve everybody regardless, say --without-authentication."
        )


def refuse_used(host: str, port: int) -> None:
    """Refuse a port that another program has or this user may not, before its address is shown."""
    if problem := _problem(host, port):
        free = next((n for n in range(port + 1, port + 100) if not _problem(host, n)), None)
        cure = "" if free is None else f" Choose another: `--port {free}` is free."
        raise _PortError(f"port {port} of {host}: {problem}.{cure}")


def _problem(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # Servers set it too: a port whose last connections are only just closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return ""


MLFLOW_PLUGIN = "tuneparts"
"""What MLflow calls the part of ours that logs its client in."""


@dataclass(frozen=True)
class Login:
    """Name and password of an MLflow account."""

    user: str
    password: str = field(repr=False)


def use_ray_token() -> bool:
    """Make Ray, before it starts, use `TUNEPARTS_RAY_TOKEN_FILE`; whether it is set."""
    path = settings.current().ray_token_file
    if path is None:
        return False
    _secret(path, "TUNEPARTS_RAY_TOKEN_FILE")
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)
    return True


def tracking_login() -> Login | None:
    """The account in `TUNEPARTS_TRACKING_LOGIN`, a file with the line `user:password`."""
    path = settings.current().tracking_login_file
    if path is None:
        return None
    user, _, password = _secret(path, "TUNEPARTS_TRACKING_LOGIN").partition(":")
    if not (user and password):
        raise SecurityError(f"{path}: a login file holds one line `user:password`. Write it so.")
    return Login(user, password)


def use_tracking_login() -> bool:
    """Make MLflow's client send the login; whether one is set."""
    # Our plugin reads the file at each request: the environment of trials has no password.
    is_set = tracking_login() is not None
    if is_set:
        os.environ["MLFLOW_TRACKING_AUTH"] = MLFLOW_PLUGIN
    return is_set


def _secret(path: Path, setting: str) -> str:
    """The text of a file that nobody else may read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"{setting} = {path}: is no readable text file: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SecurityError(
            f"{path} has mode {stat.S_IMODE(mode):o}: only its owner may read a secret. "
            f"Run `chmod 600 {path}`."
        )
    if not text:
        raise SecurityError(f"{setting} = {path}: the file is empty.")
    return text


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


class TokenAuth:
    """Lets those into an ASGI application who know the token; without one it does not start."""

    def __init__(self, app: App, token: str | None = None) -> None:
        self._app = app
        self._token = os.environ[VARIABLE] if token is None else token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        # Browsers send cookies to all ports of a host, so its name has the port in it.
        cookie = f"tuneparts-{(scope.get('server') or ('', 0))[1]}"
        given = dict(query).get("token")
        if kind == "http" and given is not None and self._is_right(given):
            # The browser gets the cookie, and goes on to the page without the token in its address.
            # One slash: it takes `//host` for another machine.
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            place = "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else "")
            headers = {
                "Location": place.encode("ascii", "ignore").decode().translate({10: "", 13: ""}),
                "Set-Cookie": f"{cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict",
                "Referrer-Policy": "no-referrer",
            }
            await _answer(send, 303, headers)
        elif kind == "lifespan" or any(map(self._is_right, _shown(scope, cookie))):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, 401, {"Content-Type": "text/plain; charset=utf-8"}, _SORRY)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _shown(scope: Scope, cookie: str) -> Iterator[str]:
    """What a request shows as its token: in the cookie, or in the header of a program."""
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        kind, _, rest = text.partition(" ")
        with suppress(CookieError, KeyError, ValueError):
            if name == b"cookie":
                yield SimpleCookie(text)[cookie].value
            elif name == b"authorization" and kind.lower() == "bearer":
                yield rest.strip()
            elif name == b"authorization" and kind.lower() == "basic":
                yield base64.b64decode(rest, validate=True).decode().partition(":")[2]


async def _answer(send: Send, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    pairs += [(b"cache-control", b"no-store"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
