"""Start MLflow's server over a store: for who knows its token, or with accounts.

MLflow reads any file for whoever reaches it, and other users of a machine reach its loopback. So a
server asks for a token that is made at its start (see `doorkeeper`). With a login
(`TUNEPARTS_TRACKING_LOGIN`) it runs MLflow's basic-auth app instead, whose administrator is that
login. Nothing secret stands on the command line, which every user of a machine can read: it
travels in the environment of the server.
"""

import importlib.util
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from tuneparts.core import binding, doorkeeper, settings
from tuneparts.core.credentials import Login
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import has_password
from tuneparts.tracking import store

CURE = "Set TUNEPARTS_TRACKING_LOGIN to a file with `user:password`."
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
    environment: dict[str, str]
    """Variables that it needs besides the environment of this process."""
    token: str | None = None
    """What opens it; None where it has accounts, or asks for nothing."""


def plan(
    uri: str,
    *,
    host: str,
    port: int,
    login: Login | None,
    forced: bool,
    is_verbose: bool = False,
) -> ServerCommand:
    """Work out how to start MLflow's server over a database, or refuse it.

    Example:
        >>> server = plan(
        ...     "sqlite:////tmp/mlflow.db", host="127.0.0.1", port=5001, login=None, forced=False
        ... )
        >>> server.environment[doorkeeper.VARIABLE] == server.token
        True

    Args:
        uri: the store, a database.
        host: what to bind to.
        port: what to listen on.
        login: the administrator; None for a server with a token.
        forced: ask nobody for anything; others may then read what this user can read.
        is_verbose: log every request, and what the server's libraries would like changed.

    Raises:
        SecurityError: Others could reach the server and it would ask for nothing.
    """
    binding.refuse_open(host, authenticated=login is not None, forced=forced, cure=CURE)
    command = store.ui_command(store.resolve(uri), port)
    if isinstance(command, str):
        raise ConfigError(f"a server is started over a database, but {command} is a server.")
    command[command.index("--host") + 1] = host
    environment: dict[str, str] = {}
    if not is_verbose:
        command += ["--uvicorn-opts", "--no-access-log --log-level warning"]
        environment |= {"PYTHONWARNINGS": "ignore", "MLFLOW_LOGGING_LEVEL": "WARNING"}
    if has_password(uri):
        at = command.index("--backend-store-uri")
        environment["MLFLOW_BACKEND_STORE_URI"] = command[at + 1]
        del command[at : at + 2]
    if login is not None:
        command += ["--app-name", "basic-auth"]
        environment |= _accounts(login, settings.current().results_dir)
        return ServerCommand(command, environment)
    if forced:
        return ServerCommand(command, environment)
    token = doorkeeper.new_token()
    command += ["--app-name", "tuneparts"]
    return ServerCommand(command, {**environment, doorkeeper.VARIABLE: token}, token)


def run(server: ServerCommand) -> None:
    """Replace this process by the server; does not return."""
    os.execve(server.command[0], server.command, {**os.environ, **server.environment})


def _accounts(login: Login, folder: Path) -> dict[str, str]:
    """Write the settings of MLflow's basic-auth, and return the variables with the secrets."""
    if importlib.util.find_spec("flask_wtf") is None:
        raise ConfigError(
            "a server with accounts needs a package of MLflow's `auth` extra, which is not "
            "installed. Run `pip install 'mlflow[auth]'`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mlflow_auth.ini"
    database = folder / "mlflow_auth.db"
    for file in (path, database):  # settings, and what can be guessed at: digests of passwords
        file.touch(mode=0o600)
        file.chmod(0o600)
    path.write_text(_AUTH_SETTINGS.format(database=database, user=login.user), encoding="utf-8")
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(path),
        "MLFLOW_AUTH_ADMIN_PASSWORD": login.password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
    }
