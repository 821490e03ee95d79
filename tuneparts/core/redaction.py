"""What must never be written down: passwords, tokens and keys, wherever they stand in a text.

By shape: a password in a URI, `token=...`, `--password ...`, an `Authorization` header, keys of
well-known makers. By value: what the environment and the credential files of this process hold.
Everything that leaves for MLflow, a log or a card steps here. Trials may print anything, so every
pattern takes linear time: it starts at a fixed word or sign, and what it repeats is bounded.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MASK = "***"
_SHORTEST = 4
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
    quotes = re.findall(r"^b?\\?['\"]?", value)[0]
    return f"{name}{quotes}{MASK}{quotes.removeprefix('b')}"


_VALUE = (
    r"(?P<value>b?(?:\\?\"[^\"\\\n]{1,4096}\\?\"|\\?'[^'\\\n]{1,4096}\\?')"
    r"|[^\s&'\",;)}\]\\]{1,4096})"
)
_PATTERNS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    # ://user:password@host. A password may hold an @ or a slash, a port is none.
    (
        r"(://[^\s/@:'\"]{0,128}):(?!\d{1,5}[/?#])(?:[^\s/'\"]{1,256}|[^\s'\"]{1,256})@",
        rf"\1:{MASK}@",
    ),
    # ://long-token@host
    (r"(://)[^\s/@:'\"]{16,256}@", rf"\1{MASK}@"),
    # Authorization: Token abc
    (
        r"(?i)(\bAuthorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:[A-Za-z]{1,16}\s{1,4})?+)"
        r"(?!\*)[^\s'\",;]{4,4096}",
        rf"\1{MASK}",
    ),
    (r"(?i)(\bBearer\s{1,4})[\w.~+/\-]{16,4096}={0,2}", rf"\1{MASK}"),
    # token=value, "token": "value", db_pass: value, ?sig=value
    (
        rf"(?i)(?P<name>(?:(?<![a-z]){_WORD}|(?<=[_\-])pass|(?<=[?&])sig|AccountKey)"
        rf"\\?['\"]?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}",
        _masked_value,
    ),
    # --token value
    (
        rf"(?i)(?P<name>(?<!\S)--?(?:\w{{1,32}}-){{0,4}}{_WORD}\s{{1,4}}(?!-)){_VALUE}",
        _masked_value,
    ),
    # Keys of well-known makers, which carry their own mark.
    (
        r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,255}|github_pat_\w{20,255}"
        r"|sk-[\w\-]{16,255}|hf_\w{20,255}|xox[abprs]-[\w\-]{10,255}|AIza[\w\-]{35}"
        r"|eyJ[\w\-]{10,512}\.[\w\-]{10,1024}\.[\w\-]{10,1024})",
        MASK,
    ),
    (
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]{1,16384}"
        r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?",
        rf"\1{MASK}",
    ),
)
_SHAPES = [(re.compile(pattern), masked) for pattern, masked in _PATTERNS]
_SECRET_NAME = re.compile(rf"(?:^|[_\-.]){_WORD}$", re.IGNORECASE)
"""A name that ends in a word for a secret: `db_password`, but not `num_tokens`."""


class Redactor:
    """Removes what looks like a secret, and the given values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # As they stand in plain text, inside JSON and inside a URI; the longest first.
        known = [value for value in values if len(value) >= _SHORTEST]
        forms = {form for v in known for form in (v, json.dumps(v)[1:-1], quote(v, safe=""))}
        patterns = []
        for form in sorted(forms, key=len, reverse=True):
            # A short one would be found inside ordinary words.
            words = r"(?<!\w){}(?!\w)" if len(form) < _SAFE_INSIDE_WORDS else "{}"
            patterns.append(words.format(re.escape(form)))
        self._values = re.compile("|".join(patterns)) if patterns else None

    def text(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for shape, masked in _SHAPES:
            text = shape.sub(masked, text)
        return text

    def tree(self, value: Any) -> Any:
        """Mask the secrets in a tree's texts; a text under a secret's name goes whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)).replace(MASK, "masked"): MASK
                if isinstance(inner, str) and inner and _SECRET_NAME.search(str(key))
                else self.tree(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.tree(inner) for inner in value]
        return value


def of_process() -> Redactor:
    """A redactor that knows the environment and the credential files of this process."""
    known: set[str] = set()
    for name, value in os.environ.items():
        is_named = _NAME_PARTS.search(name) is not None and _NO_SECRET_NAME.search(name) is None
        is_place = value.startswith(("/", "~", "./"))
        if is_named and not is_place and value.strip().lower() not in _NO_SECRET:
            known.add(value.strip())
        if "://" in value:
            with suppress(ValueError):
                password = urlsplit(value).password or ""
                known |= {password, unquote(password)}
    for name in ("TUNEPARTS_RAY_TOKEN_FILE", "RAY_AUTH_TOKEN_PATH", "TUNEPARTS_TRACKING_LOGIN"):
        with suppress(OSError, UnicodeDecodeError, KeyError):
            # A token file is one value; a login file is `user:password`.
            text = Path(os.environ[name]).expanduser().read_text(encoding="utf-8").strip()
            known |= {text, text.partition(":")[2]}
    return Redactor(known)


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
