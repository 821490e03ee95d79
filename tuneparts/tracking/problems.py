"""What could not be tracked, and which failures go away by waiting."""

import logging
import threading
from collections import Counter

from tuneparts.redaction import redact

log = logging.getLogger(__name__)

_HOPELESS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
}
_HOPELESS_FILES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Problems:
    """Each kind is logged once and counted for ever; training never hears of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, kind: str, message: str, count: int = 1) -> None:
        """Note `count` problems of a kind; the message of the first is kept, without secrets."""
        kind = redact(kind)
        with self._lock:
            is_news = kind not in self._first
            text = self._first.setdefault(kind, redact(message) if is_news else message)
            self._counts[kind] += count
        if is_news:
            log.warning("tracking: %s: %s", kind, text)

    def lines(self) -> list[str]:
        """One line per kind, in order of appearance."""
        with self._lock:
            return [f"{kind} ({self._counts[kind]}): {text}" for kind, text in self._first.items()]


def curable(error: Exception) -> bool:
    """Whether the same call can succeed later: the server is away, the database is locked."""
    from mlflow.exceptions import MlflowException, RestException
    from sqlalchemy.exc import OperationalError

    if isinstance(error, MlflowException):
        # A proxy in front of a dead server also answers 404: only MLflow's own word is final.
        is_final = isinstance(error, RestException) or "API request" not in str(error)
        return not (is_final and error.error_code in _HOPELESS)
    if isinstance(error, _HOPELESS_FILES):
        return False
    if isinstance(error, OperationalError):
        return True
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(error, OSError) and status not in {400, 404, 405, 413}


def is_gone(error: Exception) -> bool:
    """Whether the run itself is no longer in the store."""
    return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"
