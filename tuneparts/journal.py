"""What happened in a search, in order, on disk before anyone else is told.

The driver appends one line per event. The journal is the truth that everything else can be
rebuilt from: after a crash the plan is replayed against it, and what the MLflow server missed
while it was away is sent again from it. Appending the same row twice changes nothing.

Its first line says in which version of the format the others are written; a file without such a
line is of version 1. Lines of older versions are migrated while they are read.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, get_args

from tuneparts import atomic
from tuneparts.errors import DataError, StorageError

VERSION = 3
"""Of the format that is written. 2: a start says at which passes, and whose state it copies; the
moment when a worker takes a trial up is an event. 3: so is the moment when an algorithm hears a
result, where the order of arrival could matter; trials that no longer count, and replicates that
were stopped."""
_SECONDS_BETWEEN_SYNCS = 1.0
"""How old an event may be before it is on the disk, besides the moments when it must be."""
_TRIAL = re.compile(r"([a-z][a-z0-9_]*)/seed(-?\d+)/(\d+)", re.ASCII)


@dataclass(frozen=True, order=True)
class TrialId:
    """One sampled config of one arm under one seed."""

    arm: str
    seed: int
    index: int

    def __str__(self) -> str:
        return f"{self.arm}/seed{self.seed}/{self.index:05d}"

    @classmethod
    def parse(cls, text: str) -> "TrialId":
        """The inverse of `str`; a name that could leave its folder is a ValueError."""
        match = _TRIAL.fullmatch(text)
        if match is None:
            raise ValueError(f"a trial reads `arm/seed0/00000`, but got {text!r:.100}")
        return cls(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True)
class TrialStarted:
    """A trial got its config and waits for a worker.

    Repeated with a new config when the population perturbs it.
    """

    trial: TrialId
    config: Mapping[str, Any]
    time: float
    passes: int | None = 0
    """From where on it has the config; None in files of version 1, where it follows from rows."""
    donor: str | None = None
    """The trial whose state it copies here, as text."""


@dataclass(frozen=True)
class TrialRunning:
    """A worker took up a trial for the first time. Journals of older versions have none."""

    trial: TrialId
    time: float


@dataclass(frozen=True)
class Row:
    """What a learner reported after an interval; `step` is the passes so far."""

    trial: TrialId
    step: int
    metrics: Mapping[str, float]
    time: float


Outcome: TypeAlias = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class TrialEnded:
    """A trial will report nothing more: budget spent, stopped by its algorithm, or failed."""

    trial: TrialId
    outcome: Outcome
    time: float
    message: str = ""


@dataclass(frozen=True)
class RoundFailed:
    """A round of a trial failed, and the trial may go on from the state of another one."""

    trial: TrialId
    passes: int
    """Where the round began."""
    message: str
    time: float


@dataclass(frozen=True)
class TrialRetried:
    """A trial that had failed is tried again from its last checkpoint: its end is void."""

    trial: TrialId
    time: float


@dataclass(frozen=True)
class ResultTold:
    """An algorithm that waited for whichever of several trials ends first was told of this one.

    The order of these events is what a resumed search repeats.
    """

    trial: TrialId
    passes: int
    """At which the segment ended, or should have."""
    time: float


@dataclass(frozen=True)
class TrialVoided:
    """What a trial found no longer counts, though its cost does: its outcome is `stopped` now."""

    trial: TrialId
    time: float
    message: str


@dataclass(frozen=True)
class ReplicateStopped:
    """A replicate runs nothing more, by a rule of the search or because somebody asked for it."""

    trial: TrialId
    """Of its trials this one and all later ones do not count; perhaps none was that far."""
    time: float
    message: str
    is_all: bool = False
    """Whether the whole search was stopped, and with it the replicates that had not begun."""


TrialEvent: TypeAlias = (
    TrialStarted
    | TrialRunning
    | Row
    | TrialEnded
    | RoundFailed
    | TrialRetried
    | ResultTold
    | TrialVoided
)
Event: TypeAlias = TrialEvent | ReplicateStopped
Stops: TypeAlias = dict[tuple[str, int], ReplicateStopped]
"""Arm and seed of a replicate -> how it was stopped."""
_KINDS: dict[str, type[Any]] = {
    "start": TrialStarted,
    "run": TrialRunning,
    "row": Row,
    "end": TrialEnded,
    "round_failed": RoundFailed,
    "retry": TrialRetried,
    "void": TrialVoided,
    "stop": ReplicateStopped,
    "told": ResultTold,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


class Observer(Protocol):
    """Whoever wants to know: tracking, the live view."""

    def on_event(self, event: Event) -> None:
        """Take one event; must return at once."""
        ...


@dataclass
class TrialRecord:
    """All that the journal knows of one trial."""

    starts: dict[int, TrialStarted] = field(default_factory=dict)
    """Passes -> the config that the trial has from there on."""
    queued: float | None = None
    """When the first config was given."""
    running: float | None = None
    """When a worker took it up."""
    rows: dict[int, Row] = field(default_factory=dict)
    failed_rounds: dict[int, str] = field(default_factory=dict)
    """Passes at which a round began that failed -> why."""
    told: set[int] = field(default_factory=set)
    """Passes at which the algorithm was told a result, where the journal says so."""
    end: TrialEnded | None = None

    def add(self, event: TrialEvent) -> bool:
        """Take an event of this trial; returns whether it was news."""
        if isinstance(event, TrialStarted):
            return self._add_start(event)
        if self._knows(event):
            return False
        if isinstance(event, TrialRunning):
            self.running = event.time
        elif isinstance(event, Row):
            self.rows[event.step] = event
        elif isinstance(event, RoundFailed):
            self.failed_rounds[event.passes] = event.message
        elif isinstance(event, TrialVoided):
            self.end = TrialEnded(event.trial, "stopped", event.time, event.message)
        elif isinstance(event, ResultTold):
            self.told.add(event.passes)
        elif isinstance(event, TrialRetried):
            self.end = None
            newest = max(self.failed_rounds, default=-1)
            if newest >= max(self.starts, default=0):  # else the trial went on as a copy
                self.failed_rounds.pop(newest, None)
        else:
            self.end = event
        return True

    def _knows(self, event: TrialEvent) -> bool:
        """Whether an event is no news, or cannot be."""
        if isinstance(event, TrialRunning):
            # One that has reported ran before, though an older version did not say since when.
            return self.running is not None or bool(self.rows)
        if isinstance(event, Row):
            return event.step in self.rows
        if isinstance(event, RoundFailed):
            return event.passes in self.failed_rounds
        if isinstance(event, ResultTold):
            return event.passes in self.told
        outcome = None if self.end is None else self.end.outcome
        if isinstance(event, TrialRetried):
            return outcome != "failed"
        return outcome == "stopped" if isinstance(event, TrialVoided) else outcome is not None

    def _add_start(self, event: TrialStarted) -> bool:
        """A config is news where another one was in force, also if the trial had it before."""
        passes = event.passes if event.passes is not None else max(self.rows, default=0)
        before = self.starts.get(max((p for p in self.starts if p <= passes), default=-1))
        is_copy = event.donor is not None and passes not in self.starts
        if before is not None and before.config == event.config and not is_copy:
            return False
        self.starts[passes] = event
        self.queued = event.time if self.queued is None else self.queued
        return True

    @property
    def start(self) -> float | None:
        """When its work began; None while it waits for a worker.

        Older versions knew no better than the time when it was queued.
        """
        has_begun = bool(self.rows) or self.end is not None
        return self.queued if self.running is None and has_begun else self.running

    @property
    def config(self) -> Mapping[str, Any]:
        """The newest config.

        Raises:
            DataError: It never got one; the journal lacks a line.
        """
        if not self.starts:
            raise DataError("every trial of a journal has a config, but one has none.")
        return self.starts[max(self.starts)].config

    @property
    def configs(self) -> list[Mapping[str, Any]]:
        """All configs that it had, oldest first; one that came back stands there again."""
        return [self.starts[passes].config for passes in sorted(self.starts)]

    @property
    def last(self) -> Row | None:
        """The row with the most passes."""
        return self.rows[max(self.rows)] if self.rows else None

    def at(self, passes: int) -> Row | None:
        """The first row with at least so many passes."""
        later = [step for step in self.rows if step >= passes]
        return self.rows[min(later)] if later else None


class Journal:
    """An append-only file of events, and the state that they add up to.

    Example:
        >>> import tempfile
        >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl")
        >>> trial = TrialId("none", 0, 0)
        >>> journal.append(Row(trial, 100, {"val/nll": 0.5}, time=0.0))
        True
        >>> journal.append(Row(trial, 100, {"val/nll": 0.5}, time=9.0))  # known already
        False
        >>> journal.trials[trial].last.step
        100
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trials: dict[TrialId, TrialRecord] = {}
        self.stops: Stops = {}
        self.events: list[Event] = []
        if path.exists():
            self._drop_torn_tail()
        version = 0
        for line in _lines(path) if path.exists() else ():
            version = line.version
            if line.event is not None:
                self._apply(line.event)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a line that a full disk refused must not be written by a later close.
        self._file = open(path, "ab", buffering=0, opener=_opener)  # noqa: SIM115
        self._synced_at = time.monotonic()
        self._is_synced = True
        if version < VERSION:
            self._write(json.dumps({"kind": "version", "version": VERSION}).encode() + b"\n")

    def append(self, event: Event) -> bool:
        """Write an event unless the journal has it already; returns whether it was written.

        It then survives the death of this process, and after a second at most, or after `sync`,
        that of the machine.

        Raises:
            StorageError: The disk did not take the line. The journal is then closed for good; a
                new one made from the file lacks this event.
        """
        if not self._apply(event):
            return False
        self._write(_encode(event).encode() + b"\n")
        if time.monotonic() - self._synced_at > _SECONDS_BETWEEN_SYNCS:
            self.sync()
        return True

    @property
    def is_synced(self) -> bool:
        """Whether all events are on the disk."""
        return self._is_synced

    def sync(self) -> None:
        """Wait until all events are on the disk, where a power cut does not take them.

        Called before anything is done that cannot be undone should they be lost: a round that
        builds on them is started, or checkpoints that could report them again are removed.

        Raises:
            StorageError: As of `append`.
        """
        if self._is_synced:
            return
        try:
            if os.fstat(self._file.fileno()).st_nlink == 0:
                self._file.close()
                raise StorageError(
                    f"an event is on disk before anyone hears of it, but {self.path} was removed "
                    "while the search was running. What MLflow has of it stays; start it anew."
                )
            os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self._refuse(str(error))
        self._is_synced = True
        self._synced_at = time.monotonic()

    def _write(self, line: bytes) -> None:
        """Hand a line to the operating system, so that it survives the death of this process."""
        try:
            written = self._file.write(line)
            reason = None if written == len(line) else "the disk took half a line"
        except (OSError, ValueError) as error:  # ValueError: closed by an earlier failure
            reason = str(error)
        if reason is not None:
            self._refuse(reason)
        self._is_synced = False

    def _refuse(self, reason: str) -> NoReturn:
        self._file.close()
        raise StorageError(
            f"an event is on disk before anyone hears of it, but {self.path} cannot be "
            f"written: {reason}. Make space, then run `tuneparts resume`; nothing is lost."
        )

    def close(self) -> None:
        """Wait until every event is on the disk, and close the file."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def _apply(self, event: Event) -> bool:
        is_news = _take(event, self.trials, self.stops)
        if is_news:
            self.events.append(event)
        return is_news

    def _drop_torn_tail(self) -> None:
        """Cut off half a line that a crash left at the end; nobody was told of it."""
        with open(self.path, "ab", opener=_opener) as file:
            content = self.path.read_bytes()
            length = content.rfind(b"\n") + 1
            if length < len(content):
                # In place: writing the file anew would lose all of it if the disk is still full.
                file.truncate(length)


def _opener(path: str, flags: int) -> int:
    return atomic.open_in_place(Path(path), flags)


def read(path: Path) -> Iterator[Event]:
    """Read the events of a journal file, oldest first; half a line at its end is left out.

    Raises:
        DataError: A line is damaged, or the file is of a version that is not known here.
    """
    return (line.event for line in _lines(path) if line.event is not None)


class _Line(NamedTuple):
    version: int
    event: Event | None
    """None for a header."""


def _lines(path: Path) -> Iterator[_Line]:
    """Read the whole lines; a journal that a newer version continued has headers in its middle."""
    version = 1
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                line = raw.decode()
                named = header(line)
                version = version if named is None else named
                yield _Line(version, decode(line, version) if named is None else None)
            except DataError as error:
                raise DataError(f"{path}: {error}") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(
                    f"every line of a journal is one event, but line {number} of {path} is not "
                    f"({error}). Restore the file, or start the search anew."
                ) from None


def records(path: Path) -> dict[TrialId, TrialRecord]:
    """What a journal file knows of each trial, for readers; the file is left as it is."""
    return records_and_stops(path)[0]


def records_and_stops(path: Path) -> tuple[dict[TrialId, TrialRecord], Stops]:
    """As `records`, and how replicates were stopped."""
    found: dict[TrialId, TrialRecord] = {}
    stops: Stops = {}
    for event in read(path):
        _take(event, found, stops)
    return found, stops


def stops(path: Path) -> Stops:
    """How replicates were stopped; the other lines of the file are not even parsed."""
    found: Stops = {}
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith('{"kind": "stop"') and line.endswith("\n"):
                    _take(decode(line), {}, found)
    return found


def _take(event: Event, trials: dict[TrialId, TrialRecord], stops: Stops) -> bool:
    """Add an event to what is known; returns whether it was news."""
    if not isinstance(event, ReplicateStopped):
        return trials.setdefault(event.trial, TrialRecord()).add(event)
    replicate = event.trial.arm, event.trial.seed
    return stops.setdefault(replicate, event) is event


def _encode(event: Event) -> str:
    # Not `asdict`, which copies every config in depth: an event is written as it is.
    return json.dumps({"kind": _NAMES[type(event)], **vars(event), "trial": str(event.trial)})


def header(line: str) -> int | None:
    """The version that a file's first line names; None for any other line.

    Raises:
        DataError: The version is newer than this code.
    """
    if not line.startswith('{"kind": "version"'):
        return None
    version = int(json.loads(line)["version"])
    if version > VERSION:
        raise DataError(
            f"a journal has at most format {VERSION} here, but this one has {version}: a newer "
            "tuneparts wrote it. Read it with that one."
        )
    return version


def decode(line: str, version: int = VERSION) -> Event:
    """Read one line of a journal as its event; raises a builtin error for anything else.

    Args:
        line: not the header.
        version: of the format that it is written in.
    """
    values = json.loads(line)
    for old in range(version, VERSION):
        values = _MIGRATIONS[old](values)
    cls = _KINDS[values.pop("kind")]
    for name, value in values.items():
        if not _FIELDS[name](value):
            raise ValueError(f"`{name}` cannot be {value!r:.100}")
    event: Event = cls(**{**values, "trial": TrialId.parse(values["trial"])})
    return event


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) is float or type(value) is int


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "trial": lambda value: isinstance(value, str),
    "config": lambda value: isinstance(value, dict),
    "time": lambda value: _is_number(value) and abs(value) < 1e12,
    "passes": lambda value: value is None or _is_count(value),
    "donor": lambda value: value is None or isinstance(value, str),
    "step": _is_count,
    "metrics": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "outcome": lambda value: value in get_args(Outcome),
    "message": lambda value: isinstance(value, str),
    "is_all": lambda value: isinstance(value, bool),
}
"""What a line of a file may hold in each field; files come from anywhere."""


def _from_1(values: dict[str, Any]) -> dict[str, Any]:
    """Starts did not say at which passes they were."""
    return {"passes": None, **values} if values["kind"] == "start" else values


def _from_2(values: dict[str, Any]) -> dict[str, Any]:
    """Only a kind of event is new."""
    return values


_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1, 2: _from_2}
"""Version -> how a line of it becomes one of the next."""


def tell(observers: Iterable[Observer], event: Event) -> None:
    """Pass an event on to all observers."""
    for observer in observers:
        observer.on_event(event)
