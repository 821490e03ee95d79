"""What happened in a search, in order, on disk before anyone else is told.

The driver appends one line per event. The journal is the truth that everything else can be
rebuilt from: after a crash the plan is replayed against it, and what the MLflow server missed
while it was away is sent again from it. Appending the same row twice changes nothing.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from tuneparts.errors import DataError, StorageError

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
    """A trial got its config. Repeated with a new config when the population perturbs it."""

    trial: TrialId
    config: Mapping[str, Any]
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


Event: TypeAlias = TrialStarted | Row | TrialEnded
_KINDS: dict[str, type[Any]] = {"start": TrialStarted, "row": Row, "end": TrialEnded}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


class Observer(Protocol):
    """Whoever wants to know: tracking, the live view."""

    def on_event(self, event: Event) -> None:
        """Take one event; must return at once."""
        ...


@dataclass
class TrialRecord:
    """All that the journal knows of one trial."""

    configs: list[Mapping[str, Any]] = field(default_factory=list)
    start: float | None = None
    """When the first config was given."""
    rows: dict[int, Row] = field(default_factory=dict)
    end: TrialEnded | None = None

    def add(self, event: Event) -> bool:
        """Take an event of this trial; returns whether it was news."""
        if isinstance(event, TrialStarted):
            if event.config in self.configs:
                return False
            self.configs.append(event.config)
            self.start = event.time if self.start is None else self.start
        elif isinstance(event, Row):
            if event.step in self.rows:
                return False
            self.rows[event.step] = event
        else:
            if self.end is not None:
                return False
            self.end = event
        return True

    @property
    def config(self) -> Mapping[str, Any]:
        """The newest config."""
        return self.configs[-1]

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
        self.events: list[Event] = []
        if path.exists():
            self._drop_torn_tail()
            for event in read(path):
                self._apply(event)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a line that a full disk refused must not be written by a later close.
        self._file = path.open("ab", buffering=0)

    def append(self, event: Event) -> bool:
        """Write an event unless the journal has it already; returns whether it was written.

        Raises:
            StorageError: The disk did not take the line. The journal is then closed for good; a
                new one made from the file lacks this event.
        """
        if not self._apply(event):
            return False
        self._write(_encode(event).encode() + b"\n")
        return True

    def _write(self, line: bytes) -> None:
        """Hand a line to the operating system, so that it survives the death of this process.

        A power cut may still take the newest lines; workers then report them again from their
        checkpoints.
        """
        try:
            written = self._file.write(line)
            reason = None if written == len(line) else "the disk took half a line"
        except (OSError, ValueError) as error:  # ValueError: closed by an earlier failure
            reason = str(error)
        if reason is not None:
            self._file.close()
            raise StorageError(
                f"an event is on disk before anyone hears of it, but {self.path} cannot be "
                f"written: {reason}. Make space, then run `tuneparts resume`; nothing is lost."
            )

    def close(self) -> None:
        """Wait until every event is on the disk, and close the file."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _apply(self, event: Event) -> bool:
        is_news = self.trials.setdefault(event.trial, TrialRecord()).add(event)
        if is_news:
            self.events.append(event)
        return is_news

    def _drop_torn_tail(self) -> None:
        """Cut off half a line that a crash left at the end; nobody was told of it."""
        content = self.path.read_bytes()
        length = content.rfind(b"\n") + 1
        if length < len(content):
            # In place: writing the file anew would lose all of it if the disk is still full.
            os.truncate(self.path, length)


def read(path: Path) -> Iterator[Event]:
    """Read the events of a journal file, oldest first; half a line at its end is left out."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith("\n"):
                yield _decode(line, path, number)


def records(path: Path) -> dict[TrialId, TrialRecord]:
    """What a journal file knows of each trial, for readers; the file is left as it is."""
    found: dict[TrialId, TrialRecord] = {}
    for event in read(path):
        found.setdefault(event.trial, TrialRecord()).add(event)
    return found


def _encode(event: Event) -> str:
    values = asdict(event)
    values["trial"] = str(event.trial)
    return json.dumps({"kind": _NAMES[type(event)], **values})


def decode(line: str) -> Event:
    """Read one line of a journal as its event; raises a builtin error for anything else."""
    values = json.loads(line)
    cls = _KINDS[values.pop("kind")]
    event: Event = cls(**{**values, "trial": TrialId.parse(values["trial"])})
    return event


def _decode(line: str, path: Path, number: int) -> Event:
    try:
        return decode(line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"every line of a journal is one event, but line {number} of {path} is not "
            f"({error}). Restore the file, or start the search anew."
        ) from None


def tell(observers: Iterable[Observer], event: Event) -> None:
    """Pass an event on to all observers."""
    for observer in observers:
        observer.on_event(event)
