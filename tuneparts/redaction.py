"""What must never be written down: passwords, tokens and keys, wherever they stand in a text.

Two nets. One knows shapes: a password in a URI, `token=...`, `Authorization: Bearer ...`. The other
knows values: what the environment and the credential files of this process hold is removed from
any text, whatever stands around it. Everything that leaves for MLflow, a log or a card passes here.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MASK = "***"
SHORTEST = 8
"""Known values with fewer characters are left alone: they would be found inside ordinary words."""

_WORD = (
    r"(?:password|passwd|token|secret|credentials?|signature"
    r"|(?:api|access|secret|private)[_-]?key)"
)
_SECRET_NAME = re.compile(rf"{_WORD}", re.IGNORECASE)
_PLACE_NAME = re.compile(r"_(?:path|file|dir)$", re.IGNORECASE)
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host, where the password may hold an @ of its own
    (re.compile(r"([a-z][a-z0-9+.\-]*://[^\s/@:'\"]*):[^\s/'\"]+@", re.IGNORECASE), rf"\1:{MASK}@"),
    # https://long-token@host
    (re.compile(r"([a-z][a-z0-9+.\-]*://)[^\s/@:'\"]{16,}@", re.IGNORECASE), rf"\1{MASK}@"),
    # token=value, --db-password=value, ?access_key=value&
    (
        re.compile(rf"(?<![a-z])((?:[\w\-]*[_\-])?{_WORD}=)[^\s&'\",;]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    # "token": "value" inside JSON
    (
        re.compile(rf"(['\"](?:[\w\-]*[_\-])?{_WORD}['\"]\s*:\s*)(['\"])[^'\"]+\2", re.IGNORECASE),
        rf"\1\2{MASK}\2",
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/\-]{8,}=*", re.IGNORECASE), rf"\1 {MASK}"),
)


class Redactor:
    """Removes what looks like a secret, and the given values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {
            form for value in values if len(value) >= SHORTEST for form in _written_forms(value)
        }
        longest_first = sorted(known, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def text(self, text: str) -> str:
        """The text with every secret masked."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for shape, masked in _SHAPES:
            text = shape.sub(masked, text)
        return text

    def texts(self, values: Mapping[str, str]) -> dict[str, str]:
        """Names and values with every secret masked; a value under a secret's name goes whole."""
        return {
            self._name(name): MASK if _is_secret_name(name.rpartition(".")[2]) else self.text(value)
            for name, value in values.items()
        }

    def _name(self, name: str) -> str:
        """A name without secrets, of letters that every store takes."""
        return self.text(name).replace(MASK, "masked")

    def tree(self, value: Any) -> Any:
        """A tree of plain values with the secrets in its texts masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self._name(str(key)): MASK
                if isinstance(inner, str) and inner and _is_secret_name(str(key))
                else self.tree(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.tree(inner) for inner in value]
        return value


def of_process() -> Redactor:
    """A redactor that knows the environment and the credential files of this process."""
    return Redactor(_known_values(os.environ))


def redact(text: str) -> str:
    """One text with every secret masked; whoever has many keeps an `of_process()`."""
    return of_process().text(text)


class RedactingFilter(logging.Filter):
    """Masks secrets in what a log handler is about to write."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True


def has_password(uri: str) -> bool:
    """Whether a URI carries a password or a key, in its authority or its query."""
    return Redactor().text(uri) != uri


def _known_values(environment: Mapping[str, str]) -> set[str]:
    known: set[str] = set()
    for name, value in environment.items():
        is_named = _SECRET_NAME.search(name) is not None
        if is_named and not _PLACE_NAME.search(name):
            known.add(value.strip())
        if "://" in value:
            known |= _passwords(value)
    for name in ("TUNEPARTS_RAY_TOKEN_FILE", "RAY_AUTH_TOKEN_PATH", "TUNEPARTS_TRACKING_LOGIN"):
        if environment.get(name):
            known |= _content(Path(environment[name]).expanduser())
    return known


def _written_forms(value: str) -> set[str]:
    """A value as it stands in plain text, inside JSON and inside a URI."""
    return {value, json.dumps(value)[1:-1], quote(value, safe="")}


def _passwords(uri: str) -> set[str]:
    try:
        password = urlsplit(uri).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()


def _content(path: Path) -> set[str]:
    """A token file is one value; a login file is `user:password`."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return set()
    return {text, text.partition(":")[2]}


def _is_secret_name(name: str) -> bool:
    """Whether a name ends in a word for a secret: `db_password`, but not `num_tokens`."""
    return re.search(rf"(?:^|[_\-]){_WORD}$", name, re.IGNORECASE) is not None
