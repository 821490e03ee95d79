"""All errors raised on purpose; each also subclasses the builtin that a caller would catch."""

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar


def printable(text: str) -> str:
    """A text with control characters escaped: names in files must not steer a terminal."""
    return re.sub(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", lambda sign: repr(sign[0])[1:-1], text)


class TunepartsError(Exception):
    """Anything that tuneparts refuses, with the reason in the message."""

    exit_code: ClassVar[int] = 2
    """Of a command that ends with it."""


class ConfigError(TunepartsError, ValueError):
    """An invalid config, search or command-line value."""


class UnknownNameError(TunepartsError, LookupError):
    """A name that is not in its table; the message lists the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        super().__init__(f"`{name}` is not a known {kind}.{hint} Known: {', '.join(known)}.")


class InterruptedRunError(TunepartsError, RuntimeError):
    """A run that was ended by Ctrl-C; it can be continued."""


class DataError(TunepartsError, RuntimeError):
    """A data set that is damaged, or of the wrong shape."""


class DataMissingError(DataError, FileNotFoundError):
    """A data set that is not where it was looked for."""


class CheckpointError(TunepartsError, RuntimeError):
    """A checkpoint that is truncated, corrupt, or of another learner."""


class DivergedError(TunepartsError, ArithmeticError):
    """Training produced a NaN or infinite loss."""


class HangError(TunepartsError, RuntimeError):
    """An interval that took longer than its limit."""


class BusyError(TunepartsError, RuntimeError):
    """Another process is already driving this search."""


class RoundError(TunepartsError, RuntimeError):
    """Too few clients answered in a federated round."""


class PlacementError(TunepartsError, RuntimeError):
    """A trial asks for resources that the cluster will never have."""


class ClusterError(TunepartsError, ConnectionError):
    """No Ray cluster could be joined at the address that was given."""


class StorageError(TunepartsError, OSError):
    """A disk or store that cannot take what must be written; the search can be resumed."""


class SecurityError(TunepartsError, PermissionError):
    """A secret that others could read, or a server that would ask for no password."""


class _PortError(TunepartsError, OSError):
    """A port that another program listens on."""

    exit_code = 1


class WorkerError(TunepartsError, RuntimeError):
    """Worker processes of the local executor do not start."""


class AllFailedError(TunepartsError, RuntimeError):
    """A search of which no trial ended without a failure."""
