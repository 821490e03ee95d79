"""Resolve, create and open the MLflow store, and read from it through MLflow's public client.

The default is one SQLite file with an `artifacts` folder next to it: embedded, no server. Any
other database or an MLflow server is reached by its URI.
"""

import logging
import math
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from tuneparts.core import access, redaction, settings
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)
REFUSED = "not taken by MLflow"
"""The kind of problem of a call that MLflow refuses for good."""
Client: TypeAlias = "MlflowClient | _RedactingClient"
_Point: TypeAlias = tuple[str, str, int, int, float]
"""Run id, metric, step, milliseconds since 1970, value."""
_RUNS_PER_PAGE = 1000
_MOST_PARAMS, _MOST_ENTRIES = 100, 1000
"""What MLflow takes in one batch."""
_READERS = 8
"""Threads that read metric histories from a server."""
_LARGEST = 1.7976931348623157e308
"""What MLflow's databases hold in the place of infinity."""

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The tracker retries itself. A retry hidden inside the client could create a run twice when
    # only the answer got lost.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


def resolve(uri: str | None = None) -> str:
    """Check the URI of a store and make it absolute; None means the one in the settings."""
    uri = settings.current().tracking_uri if uri is None else uri
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in {*_DATABASES, *_SERVERS}:
        raise ConfigError(
            f"tracking URI `{redact(uri)}`: must be a database ({', '.join(_DATABASES)}) or a "
            f"server ({', '.join(_SERVERS)}); MLflow's file store is not supported. Set "
            f"TUNEPARTS_TRACKING_URI=sqlite:///{settings.current().results_dir / 'mlflow.db'}"
        )
    return f"sqlite:///{_sqlite_path(uri)}" if scheme == "sqlite" else uri


def is_server(uri: str) -> bool:
    """Whether the store is reached over HTTP."""
    return urlsplit(uri).scheme in _SERVERS


def exists(uri: str) -> bool:
    """Whether there can be anything to read; false only for a SQLite file not yet made."""
    return not uri.startswith("sqlite") or _sqlite_path(uri).exists()


def _artifact_root(uri: str) -> str | None:
    """Where artifacts of new experiments go; None lets the server decide."""
    if is_server(uri):
        return None
    folder = _sqlite_path(uri).parent if uri.startswith("sqlite") else None
    return ((folder or settings.current().results_dir) / "artifacts").as_uri()


def client(uri: str) -> "MlflowClient":
    """Make a client of the store: a database is opened, or made; a server is not yet asked."""
    _quieten()
    from mlflow import MlflowClient  # takes seconds, and most commands do without
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if uri.startswith("sqlite"):
        path = _sqlite_path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # SQLite's own files are no group's, whatever the umask says
            path.touch(0o666)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except (MlflowException, SQLAlchemyError, ImportError) as error:
        reason = redact(str(error)).partition("\n")[0]
        raise ConfigError(
            f"the store cannot be opened: {reason}. Install its driver, try `mlflow db upgrade` "
            "after a backup, or name another store in TUNEPARTS_TRACKING_URI."
        ) from error


def _search(client: Client, experiment_ids: Sequence[str | None], query: str) -> list[Any]:
    """All MLflow runs that match a filter, however many pages they fill."""
    read = partial(client.search_runs, experiment_ids, query, max_results=_RUNS_PER_PAGE)
    page = read()
    found = [*page]
    while page.token:
        page = read(page_token=page.token)
        found += page
    return found


def points(client: Client, metrics_of: Mapping[str, set[str]]) -> list[_Point]:
    """Every logged point of the given metrics, by run id; MLflow reads one metric per call."""
    series = [(run_id, name) for run_id, names in metrics_of.items() for name in sorted(names)]

    def read(one: tuple[str, str]) -> list[_Point]:
        return [
            (*one, point.step, point.timestamp, _restore_infinity(point.value))
            for point in client.get_metric_history(*one)
        ]

    with ThreadPoolExecutor(_READERS if is_server(client.tracking_uri) else 1) as pool:
        return [point for some in pool.map(read, series) for point in some]


def _restore_infinity(value: float) -> float:
    """A stored value, with infinity where MLflow had to put the largest number instead."""
    return math.copysign(math.inf, value) if abs(value) >= _LARGEST else value


def artifact_text(uri: str, run_id: str, path: str) -> str | None:
    """Read a text file of a run, such as `search.json`; None when the run has no such artifact."""
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix="tuneparts-artifact-") as folder:
        try:
            found = client(uri).download_artifacts(run_id, path, folder)
            return Path(found).read_text(encoding="utf-8")
        except (MlflowException, OSError):
            return None


def _quieten() -> None:
    """Keep MLflow from phoning home, printing links and retrying, and log in where that is set."""
    try:
        Path.cwd()
    except FileNotFoundError:  # Ray removes its driver's folder where two nodes share a disk
        os.chdir(Path.home())
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    access.use_tracking_login()
    try:
        Path.home()
    except RuntimeError:  # MLflow cannot be imported by a user without a home, as in containers
        os.environ["HOME"] = str(settings.current().results_dir)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def unreachable(uri: str) -> str | None:
    """Why the store does not answer now, in a line; None when it does."""
    try:
        client(uri).search_experiments(max_results=1)
    except Exception as error:  # every way to fail is an answer here
        return redact(str(error)).partition("\n")[0]
    return None


def _ui_command(uri: str, port: int, host: str = "127.0.0.1") -> list[str]:
    _quieten()
    place = ["--backend-store-uri", uri, "--host", host, "--port", str(port)]
    place += ["--default-artifact-root", str(_artifact_root(uri)), "--workers", "1"]
    return [sys.executable, "-m", "mlflow", "server", *place]


_WRITING = frozenset(
    ("create_experiment", "create_run", "log_batch", "log_text", "set_tag", "set_experiment_tag")
)
"""Methods of MLflow's client whose arguments are stored as text, save for the first: it names the
experiment or the run."""


class _RedactingClient:
    """An MLflow client that masks secrets in texts; it connects with its first call."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._redactor = redaction.of_process()

    @cached_property
    def _client(self) -> "MlflowClient":
        return client(self._uri)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in _WRITING:
            return method

        def write(place: str, *args: Any, **named: Any) -> Any:
            masked = {  # save for a path, which is used, and not only shown
                key: value if key == "artifact_location" else self._masked(value)
                for key, value in named.items()
            }
            return method(place, *map(self._masked, args), **masked)

        return write

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.text(value)
        if isinstance(value, Mapping):
            return self._redactor.tree(value)
        if not isinstance(value, Sequence):
            return value
        if not value or not isinstance(value[0].value, str):
            return value  # points
        texts = ((entry, self._redactor.tree({entry.key: entry.value})) for entry in value)
        return [type(entry)(*pair) for entry, text in texts for pair in text.items()]


_HOPELESS = {"BAD_REQUEST", "INVALID_PARAMETER_VALUE", "INVALID_STATE"}
_HOPELESS |= {"RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"}
_HOPELESS_FILES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def _is_retryable(error: Exception) -> bool:
    """Whether the same call can succeed later: the server is away, the database is locked."""
    from mlflow.exceptions import MlflowException, RestException
    from sqlalchemy.exc import OperationalError

    if isinstance(error, MlflowException):
        # A proxy in front of a dead server also answers 404: only MLflow's own word is final.
        is_final = isinstance(error, RestException) or "API request" not in str(error)
        return not (is_final and error.error_code in _HOPELESS)
    status = getattr(getattr(error, "response", None), "status_code", None)
    is_final = isinstance(error, _HOPELESS_FILES) or status in {400, 404, 405, 413}
    return isinstance(error, OSError | OperationalError) and not is_final


class _Problems:
    """What could not be tracked. Each kind is logged once and counted; training goes on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, kind: str, message: str, count: int = 1) -> None:
        """Count problems of a kind; the message of the first one is kept, without secrets."""
        kind = redact(kind)
        with self._lock:
            self._counts[kind] += count
            if kind not in self._first:
                self._first[kind] = redact(message)
                _log.warning("tracking: %s: %s", kind, self._first[kind])

    def lines(self) -> list[str]:
        """One line per kind, in order of appearance."""
        with self._lock:
            return [f"{kind} ({self._counts[kind]}): {text}" for kind, text in self._first.items()]


class _Calls:
    """Makes calls to MLflow that can be repeated, and notes what MLflow refuses for good."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.problems = _Problems()
        self.made = 0
        """What has arrived and need not be sent again: the sign of progress. A call that every
        attempt repeats is none, though it succeeds."""
        self.points = 0  # of trials, that have arrived

    def make(self, call: Callable[..., _T], *args: Any, **named: Any) -> _T | None:
        """Make a call; raises only what a retry can solve, and returns None for what it cannot."""
        try:
            return call(*args, **named)
        except Exception as error:
            if _is_retryable(error):
                raise
            self.problems.add(REFUSED, f"{error}")
            return None

    def send(
        self, run_id: str, params: dict[str, str], tags: dict[str, str],
        points: list[tuple[str, float, int, int]],
    ) -> None:  # fmt: skip
        """Log in as few batches as MLflow allows; what is done is removed from what is given."""
        from mlflow.entities import Metric, Param, RunTag

        while params or tags or points:
            some = list(params.items())[:_MOST_PARAMS]
            few = [*(Param(*pair) for pair in some), *(RunTag(*pair) for pair in tags.items())]
            batch = [Metric(*point) for point in points[: _MOST_ENTRIES - len(few)]]
            self._log(run_id, [*few, *batch])
            for key, _ in some:
                del params[key]
            tags.clear()
            del points[: len(batch)]

    def _log(self, run_id: str, entries: Sequence[Any]) -> None:
        """Log one batch; of one that MLflow refuses for good only the entries at fault go."""
        kinds: dict[str, list[Any]] = {"Metric": [], "Param": [], "RunTag": []}
        for entry in entries:
            kinds[type(entry).__name__].append(entry)
        try:
            self.client.log_batch(run_id, *kinds.values())
            self.made += len(kinds["Metric"])
        except Exception as error:
            if _is_retryable(error):
                raise
            is_gone = getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"
            if is_gone or len(entries) <= 1:  # the run itself, or one entry
                self.problems.add(REFUSED, f"{error}", len(entries))
                return
            half = len(entries) // 2
            self._log(run_id, entries[:half])
            self._log(run_id, entries[half:])


def _sqlite_path(uri: str) -> Path:
    _, found, path = uri.partition(":///")
    if not found or path in {"", ":memory:"}:
        raise ConfigError(f"`{uri}`: a SQLite store is a file. Write sqlite:///path/to/mlflow.db.")
    return Path(path).expanduser().absolute()
