"""Which MLflow store is meant, how it comes to be, and how a person looks at it.

The default is one SQLite file with an `artifacts` folder beside it: embedded, no server. Any
other database or an MLflow server is reached by its URI.
"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tuneparts import credentials, settings
from tuneparts.errors import ConfigError
from tuneparts.redaction import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SERVERS = ("http", "https")
_RUNS_PER_PAGE = 1000

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The writer retries itself. A retry hidden inside the client could create a run twice when
    # only the answer got lost.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


def resolve(uri: str | None = None) -> str:
    """The URI of the store, absolute and checked; None means the one in the settings.

    Raises:
        ConfigError: The URI is neither a database nor a server.
    """
    uri = settings.current().tracking_uri if uri is None else uri
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme == "sqlite":
        return f"sqlite:///{_sqlite_path(uri)}"
    if scheme in DATABASES or scheme in SERVERS:
        return uri
    cure = f"sqlite:///{settings.current().results_dir / 'mlflow.db'}"
    raise ConfigError(
        f"runs are tracked in a database ({', '.join(DATABASES)}) or on a server "
        f"({', '.join(SERVERS)}), but got `{redact(uri)}`; MLflow's file store is not supported. "
        f"Set TUNEPARTS_TRACKING_URI={cure}"
    )


def is_server(uri: str) -> bool:
    """Whether the store is reached over HTTP."""
    return urlsplit(uri).scheme in SERVERS


def exists(uri: str) -> bool:
    """Whether there can be anything to read; false only for a SQLite file not yet made."""
    return not uri.startswith("sqlite") or _sqlite_path(uri).exists()


def artifact_root(uri: str) -> str | None:
    """Where artifacts of new experiments go; None lets the server decide."""
    if is_server(uri):
        return None
    beside = _sqlite_path(uri).parent if uri.startswith("sqlite") else None
    return ((beside or settings.current().results_dir) / "artifacts").as_uri()


def prepare(uri: str) -> None:
    """Create the store if it is a database without tables; a server is left alone.

    A new SQLite store takes one to three seconds, an existing one about a second of imports.

    Raises:
        ConfigError: The database cannot be opened, or has the tables of another MLflow.
    """
    client(uri)


def client(uri: str) -> "MlflowClient":
    """A client of the store; opens a database, does not yet talk to a server."""
    quieten()
    from mlflow import MlflowClient  # takes seconds, and most commands do without
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if uri.startswith("sqlite"):
        _sqlite_path(uri).parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except (MlflowException, SQLAlchemyError, ImportError) as error:
        reason = redact(str(error)).partition("\n")[0]
        raise ConfigError(
            f"the store must be a database that this MLflow can open, but opening it said: "
            f"{reason}. Install its driver, try `mlflow db upgrade` after a backup, or name "
            "another store in TUNEPARTS_TRACKING_URI."
        ) from error


def search(client: "MlflowClient", experiment_ids: Sequence[str | None], query: str) -> list[Any]:
    """All MLflow runs that match a filter, however many pages they fill."""
    found: list[Any] = []
    token: str | None = None
    while True:
        page = client.search_runs(
            experiment_ids, query, max_results=_RUNS_PER_PAGE, page_token=token
        )
        found += page
        token = page.token
        if not token:
            return found


def quieten() -> None:
    """Keep MLflow from phoning home, printing links and retrying, and log in where that is set."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    credentials.use_tracking_login()
    logging.getLogger("alembic").setLevel(logging.WARNING)


def unreachable(uri: str) -> str | None:
    """Why the store does not answer now, in a line; None when it does."""
    try:
        client(uri).search_experiments(max_results=1)
    except Exception as error:  # every way to fail is an answer here
        return redact(str(error)).partition("\n")[0]
    return None


def ui_command(uri: str, port: int) -> list[str] | str:
    """The command that serves MLflow's UI on this machine, or the address of a running server."""
    if is_server(uri):
        return uri
    quieten()
    root = artifact_root(uri)
    artifacts = ["--default-artifact-root", root] if root else []
    place = ["--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", "mlflow", "server", *place, *artifacts, "--workers", "1"]


def _sqlite_path(uri: str) -> Path:
    _, found, path = uri.partition(":///")
    if not found or path in {"", ":memory:"}:
        raise ConfigError(
            f"a SQLite store is a file, but got `{uri}`. Write sqlite:///path/to/mlflow.db."
        )
    return Path(path).expanduser().absolute()
