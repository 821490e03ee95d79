"""What the tracker puts on the writer's queue besides the events of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tuneparts.journal import Event
from tuneparts.tracking.pending import Status


@dataclass(frozen=True)
class Artifact:
    """A file or folder for the parent run."""

    path: Path


@dataclass(frozen=True)
class Answer:
    """What the search found, in Markdown, for the description of the parent run."""

    text: str


@dataclass(frozen=True)
class Tags:
    """Tags for a run that is in the store already."""

    run_id: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Closing:
    """The search is over: whatever still runs is ended as KILLED."""

    status: Status
    time: float


Item: TypeAlias = Event | Answer | Artifact | Closing | Tags
