"""MLflow's server over a store: started with a token or with accounts, and the app behind it.

MLflow reads any file for anybody who reaches it, and other users of a machine reach its loopback.
So a server asks for a token that is made at its start (see `core.access`): it runs this module as
an app plugin (`mlflow server --app-name tuneparts`). With a login (`TUNEPARTS_TRACKING_LOGIN`) it
runs MLflow's basic-auth app instead, whose administrator is that login. Secrets travel in the
environment of the server, never on the command line, which every user of a machine can read.
"""

import importlib.util
import json
import os
import secrets
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneparts.core import access, settings
from tuneparts.core.access import App, Login, Receive, Scope, Send, TokenAuth
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import has_password, redact
from tuneparts.tracking import store

_CHOICES = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}
"""What MLflow's pages keep in the browser: the kind of work that their reader does, and that the
assistant, which takes a quarter of a laptop's screen, need not open by itself."""
_SCRIPT = (
    "<script>for (const [key, value] of Object.entries("
    + json.dumps(_CHOICES)
    + ")) localStorage.getItem(key) ?? localStorage.setItem(key, value)</script>"
).encode()
_CONDITIONS = {b"if-none-match", b"if-modified-since", b"accept-encoding"}
_CURE = "Set TUNEPARTS_TRACKING_LOGIN to a file with `user:password`."
_AUTH_SETTINGS = """[mlflow]
default_permission = READ
database_uri = sqlite:///{database}
admin_username = {user}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


@dataclass(frozen=True)
class ServerCommand:
    """How a server is started."""

    command: list[str]
    environment: dict[str, str]  # besides the environment of this process
    token: str | None = None  # where it has no accounts and asks for something


def plan(
    uri: str, *, host: str, port: int, login: Login | None, forced: bool, is_verbose: bool = False
) -> ServerCommand:
    """Work out how to start MLflow's server over a database, or refuse it.

    Without a login the server asks for a token; `forced` it asks for nothing.
    """
    access.refuse_open(host, authenticated=login is not None, forced=forced, cure=_CURE)
    if store.is_server(uri):
        raise ConfigError(f"{redact(uri)}: is a server already; name a database.")
    command = store._ui_command(store.resolve(uri), port, host)
    environment: dict[str, str] = {}
    if not is_verbose:
        command += ["--uvicorn-opts", "--no-access-log --log-level warning"]
        environment |= {"PYTHONWARNINGS": "ignore", "MLFLOW_LOGGING_LEVEL": "WARNING"}
    if has_password(uri):
        at = command.index("--backend-store-uri")
        environment["MLFLOW_BACKEND_STORE_URI"] = command[at + 1]
        del command[at : at + 2]
    token = None
    if login is not None:
        command += ["--app-name", "basic-auth"]
        environment |= _accounts(login, settings.current().results_dir)
    elif not forced:
        token = access.new_token()
        command += ["--app-name", "tuneparts"]
        environment[access.VARIABLE] = token
    return ServerCommand(command, environment, token)


def run(server: ServerCommand) -> None:
    """Replace this process by the server; does not return."""
    os.execve(server.command[0], server.command, {**os.environ, **server.environment})


def _accounts(login: Login, folder: Path) -> dict[str, str]:
    """Write the settings of MLflow's basic-auth, and return the variables with the secrets."""
    if importlib.util.find_spec("flask_wtf") is None:
        need = "a server with accounts needs MLflow's `auth` extra"
        raise ConfigError(f"{need}. Run `pip install 'mlflow[auth]'`.")
    folder.mkdir(parents=True, exist_ok=True)
    path, database = folder / "mlflow_auth.ini", folder / "mlflow_auth.db"
    for file in (path, database):  # settings, and what can be guessed at: digests of passwords
        file.touch(mode=0o600)
        file.chmod(0o600)
    path.write_text(_AUTH_SETTINGS.format(database=database, user=login.user), encoding="utf-8")
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(path),
        "MLFLOW_AUTH_ADMIN_PASSWORD": login.password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
    }


def create_app() -> TokenAuth:
    """MLflow's application, for those who know the token in this process's environment."""
    from mlflow.server.fastapi_app import app

    return TokenAuth(_RunsFirst(app))


class _RunsFirst:
    """An ASGI application in front of MLflow's, whose experiments open on their runs.

    MLflow 3.17 opens the view for language models unless the browser keeps another choice. So its
    page is held back until all of it is there, and sent with `_CHOICES` made in its head.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        messages: list[MutableMapping[str, Any]] = []

        async def hold(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        # The page as it was kept by the browser would be without the choices.
        asked = [pair for pair in scope["headers"] if pair[0] not in _CONDITIONS]
        await self._app({**scope, "headers": asked}, receive, hold)
        body = b"".join(message.get("body", b"") for message in messages)
        body = body.replace(b"<head>", b"<head>" + _SCRIPT, 1)
        headers = [
            (name, str(len(body)).encode() if name.lower() == b"content-length" else value)
            for name, value in messages[0]["headers"]
            if name.lower() not in {b"etag", b"last-modified"}
        ]
        await send({**messages[0], "headers": headers})
        await send({"type": "http.response.body", "body": body})
