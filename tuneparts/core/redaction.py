"""What must never be written down: passwords, tokens and keys, wherever they stand in a text.

Two nets. One knows shapes: a password in a URI, `token=...`, `--password ...`, an `Authorization`
header, keys of well-known makers. The other knows values: what the environment and the credential
files of this process hold is removed from any text, whatever stands around it. Everything that
leaves for MLflow, a log or a card passes here.

Trials may print anything, so every pattern takes time linear in the text: it starts at a fixed
word or sign, and what it repeats is bounded.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MASK = "***"
SHORTEST = 4
"""Known values with fewer characters are left alone: they are no secrets."""
_SAFE_INSIDE_WORDS = 8
"""Known values with fewer characters are masked as whole words only."""

_WORD = (
    r"(?:password|passwd|passphrase|pwd|token|secret|credentials?|signature"
    r"|(?:api|access|secret|private|account)[_-]?key)"
)
_NO_SECRET = frozenset({"none", "null", "true", "false", "yes", "no"})
_NAME_PARTS = re.compile(
    r"(?:^|_)(?:PASS(?:WORD|WD|PHRASE)?|PWD|PAT|KEY|TOKEN|SECRET|CREDENTIALS?|AUTH|DSN|SIGNATURE"
    r"|APIKEY|CONNECTION_STRING)(?:_|$)",
    re.IGNORECASE,
)
_NO_SECRET_NAME = re.compile(
    r"^(?:OLD)?PWD$|_(?:NAME|PATH|FILE|DIR|TYPE|MODE|URL|ID|SOCK|ENABLED|TIMEOUT)$", re.IGNORECASE
)


def _masked_value(match: re.Match[str]) -> str:
    """`name=value` with its value masked; small numbers and `none` are no secrets."""
    name, value = match["name"], match["value"]
    bare = value.strip("\\'\"")
    is_setting = bare.isdigit() and len(bare) < 6 and "pass" not in name.lower()
    if is_setting or bare.lower() in _NO_SECRET or bare == MASK:
        return match[0]
    opening = re.match(r"b?\\?['\"]?", value)
    quotes = opening[0] if opening else ""
    return f"{name}{quotes}{MASK}{quotes.removeprefix('b')}"


_VALUE = (
    r"(?P<value>b?(?:\\?\"[^\"\\\n]{1,4096}\\?\"|\\?'[^'\\\n]{1,4096}\\?')"
    r"|[^\s&'\",;)}\]\\]{1,4096})"
)
_SHAPES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # ://user:password@host. A password may hold an @ or a slash, a port is none.
    (
        re.compile(
            r"(://[^\s/@:'\"]{0,128}):(?!\d{1,5}[/?#])(?:[^\s/'\"]{1,256}|[^\s'\"]{1,256})@"
        ),
        rf"\1:{MASK}@",
    ),
    # ://long-token@host
    (re.compile(r"(://)[^\s/@:'\"]{16,256}@"), rf"\1{MASK}@"),
    # Authorization: Token abc
    (
        re.compile(
            r"(\bAuthorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:[A-Za-z]{1,16}\s{1,4})?+)"
            r"(?!\*)[^\s'\",;]{4,4096}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(\bBearer\s{1,4})[\w.~+/\-]{16,4096}={0,2}", re.IGNORECASE), rf"\1{MASK}"),
    # token=value, "token": "value", db_pass: value, ?sig=value
    (
        re.compile(
            rf"(?P<name>(?:(?<![a-z]){_WORD}|(?<=[_\-])pass|(?<=[?&])sig|AccountKey)"
            rf"\\?['\"]?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}",
            re.IGNORECASE,
        ),
        _masked_value,
    ),
    # --token value
    (
        re.compile(
            rf"(?P<name>(?<!\S)--?(?:\w{{1,32}}-){{0,4}}{_WORD}\s{{1,4}}(?!-)){_VALUE}",
            re.IGNORECASE,
        ),
        _masked_value,
    ),
    # Keys of well-known makers, which carry their own mark.
    (
        re.compile(
            r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,255}|github_pat_\w{20,255}"
            r"|sk-[\w\-]{16,255}|hf_\w{20,255}|xox[abprs]-[\w\-]{10,255}|AIza[\w\-]{35}"
            r"|eyJ[\w\-]{10,512}\.[\w\-]{10,1024}\.[\w\-]{10,1024})"
        ),
        MASK,
    ),
    (
        re.compile(
            r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]{1,16384}"
            r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
        ),
        rf"\1{MASK}",
    ),
)


class Redactor:
    """Removes what looks like a secret, and the given values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {
            form for value in values if len(value) >= SHORTEST for form in _written_forms(value)
        }
        longest_first = sorted(known, key=len, reverse=True)
        self._values = re.compile("|".join(map(_pattern, longest_first))) if known else None

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
        is_named = _NAME_PARTS.search(name) is not None and _NO_SECRET_NAME.search(name) is None
        is_place = value.startswith(("/", "~", "./"))
        if is_named and not is_place and value.strip().lower() not in _NO_SECRET:
            known.add(value.strip())
        if "://" in value:
            known |= _passwords(value)
    for name in ("TUNEPARTS_RAY_TOKEN_FILE", "RAY_AUTH_TOKEN_PATH", "TUNEPARTS_TRACKING_LOGIN"):
        if environment.get(name):
            known |= _content(Path(environment[name]).expanduser())
    return known


def _pattern(value: str) -> str:
    """How a known value is searched: a short one would be found inside ordinary words."""
    escaped = re.escape(value)
    return escaped if len(value) >= _SAFE_INSIDE_WORDS else rf"(?<!\w){escaped}(?!\w)"


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
