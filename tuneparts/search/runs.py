"""The folder of one run of a search: the resolved search, its journal, checkpoints and reports.

Its card, `run.json`, has a version; a card without one is of version 1. Older cards are migrated
while they are read, and stay on disk as they are.
"""

import calendar
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts import atomic
from tuneparts.config import parse
from tuneparts.errors import ConfigError, DataMissingError, StorageError, TunepartsError
from tuneparts.search import code
from tuneparts.search.code import Code

if TYPE_CHECKING:  # brings torch, and a listing of runs does not need it
    from tuneparts.search.spec import Search

VERSION = 2
"""Of the card. 2: it says when the run was created, and names are in UTC."""
_RUN = re.compile(r"[a-z][a-z0-9_]*/(\d{8}-\d{6})Z?-[0-9a-f]{12}")
_MOST_AT_ONCE = 60
"""Seconds to wait for a name that no other run of the same search has."""
_STAMP = "%Y%m%d-%H%M%S"


@dataclass(frozen=True)
class Run:
    """One run of a search, and the folder that holds everything of it.

    Its card, `run.json`, is written once at the start, so it is read and parsed once too.
    """

    root: Path
    """The results folder."""
    name: str
    """`SEARCH/TIME-DIGEST`."""

    @property
    def folder(self) -> Path:
        """Where the card, the journal, checkpoints and reports lie."""
        return self.root / self.name

    @cached_property
    def card(self) -> dict[str, Any]:
        """What was written down at the start: search, command, commit, storage.

        Raises:
            DataMissingError: There is no readable card.
        """
        try:
            card: Any = json.loads((self.folder / "run.json").read_text("utf-8"))
            if not isinstance(card, dict) or not isinstance(card.get("search"), dict):
                raise ValueError("it holds no search")
            return _migrated(card, self.name)
        except ConfigError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise DataMissingError(
                f"a run has a readable run.json, but {self.folder} has not: {error}"
            ) from error

    @property
    def created(self) -> float:
        """When it began, in seconds since 1970; of a damaged card as far as its name says."""
        try:
            return float(self.card["created"])
        except (TunepartsError, KeyError, TypeError, ValueError):
            return _named_time(self.name)

    @property
    def storage(self) -> str:
        """Path or URI where the checkpoints, artifacts and logs of its trials lie."""
        return str(self.card["storage"] or default_storage(self.folder))

    @cached_property
    def search(self) -> "Search":
        """The resolved search, as it was when the run began."""
        from tuneparts.search.spec import Search

        with self.code.importable():
            return parse(Search, self.card["search"])

    @cached_property
    def code(self) -> Code:
        """What the search brought along, as it was when the run began."""
        return Code.of(self.folder / "code")


def is_name(text: str) -> bool:
    """Whether a text reads like the full name of a run, `SEARCH/TIME-DIGEST`."""
    return _RUN.fullmatch(text) is not None


def default_storage(folder: Path) -> str:
    """Where checkpoints of a run lie when no other storage was given."""
    return str(folder.absolute() / "trials")


def create(root: Path, search: "Search", **facts: Any) -> Run:
    """Make the folder of a new run, and write its card.

    Args:
        root: the results folder.
        search: the resolved search.
        facts: what else the card says: command, commit, versions, storage. Several runs may
            share a storage: each has a folder of its name there.

    Raises:
        StorageError: The folder cannot be made, or is there already.
    """
    try:
        run, now = _new_folder(root, search)
    except OSError as error:
        raise StorageError(f"no run can begin in {root.absolute()}: {error}") from error
    if facts.get("storage") is not None:
        facts["storage"] = f"{facts['storage'].rstrip('/')}/{run.name}"
    card = {
        "version": VERSION,
        "created": now,
        "search": search.model_dump(mode="json"),
        "digest": search.digest,
        **facts,
    }
    try:
        card["code"] = code.keep(search, run.folder / "code").digest
        atomic.write_text(run.folder / "run.json", json.dumps(card, indent=2))
    except OSError as error:
        raise StorageError(f"no run can begin in {root.absolute()}: {error}") from error
    # What was just written need not be read back.
    run.__dict__.update(card=card, search=search)
    return run


def _new_folder(root: Path, search: "Search") -> tuple[Run, float]:
    """Make the folder of a run that begins now; returns when that is.

    Names are precise to the second, so whoever comes second, perhaps in another thread, waits.
    """
    for _ in range(_MOST_AT_ONCE):
        now = time.time()
        stamp = time.strftime(f"{_STAMP}Z", time.gmtime(now))
        run = Run(root, f"{search.name}/{stamp}-{search.digest}")
        try:
            run.folder.mkdir(parents=True, exist_ok=False)
            return run, now
        except FileExistsError:
            if not run.folder.is_dir():
                raise
            time.sleep(1.0 - now % 1.0)
    raise FileExistsError(f"too many runs of {search.name} begin at once")


def listing(root: Path) -> list[Run]:
    """List all runs under a results folder, oldest first by the time that their cards say."""
    cards = root.glob("*/*/run.json")
    names = [str(card.parent.relative_to(root)) for card in cards]
    found = [Run(root, name) for name in names if _RUN.fullmatch(name)]
    return sorted(found, key=lambda run: (run.created, run.name))


def newest_of(root: Path, search: "Search") -> Run | None:
    """Find the newest run of this very search: the same name and digest."""
    same = [run for run in listing(root) if run.name.startswith(f"{search.name}/")]
    same = [run for run in same if run.name.endswith(f"-{search.digest}")]
    return same[-1] if same else None


def named(root: Path, name: str | None) -> Run:
    """Find a run by its name, or the newest one when there is no name.

    Args:
        root: the results folder.
        name: `SEARCH/TIME-DIGEST`, its second half, or a search's name for its newest run.

    Raises:
        DataMissingError: There is no run at all.
        ConfigError: No run has this name; a name cannot lead out of the results folder.
    """
    runs = listing(root)
    if name is None:
        if not runs:
            raise DataMissingError(
                f"there is no run under {root} yet. Start with `tuneparts search rotated_digits`."
            )
        return runs[-1]
    matches = [run for run in runs if run.name == name or run.name.split("/")[1] == name]
    matches = matches or [run for run in runs if run.name.split("/")[0] == name][-1:]
    if not matches:
        known = ", ".join(run.name for run in runs[-5:]) or "none"
        raise ConfigError(f"`{name}` is not a run under {root}. The newest: {known}.")
    return matches[0]


def _migrated(card: dict[str, Any], name: str) -> dict[str, Any]:
    """A card in the form of this version."""
    version = card.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ConfigError(
            f"a run's card has at most format {VERSION} here, but {name} has {version!r}: a newer "
            "tuneparts wrote it. Read it with that one."
        )
    for old in range(version, VERSION):
        card = _MIGRATIONS[old](card, name)
    return card


def _from_1(card: dict[str, Any], name: str) -> dict[str, Any]:
    """Only the name said when a run began."""
    return {**card, "version": 2, "created": _named_time(name)}


_MIGRATIONS: dict[int, Callable[[dict[str, Any], str], dict[str, Any]]] = {1: _from_1}
"""Version -> how a card of it becomes one of the next; given the run's name too."""


def _named_time(name: str) -> float:
    """When a run began by its name: in UTC with a Z, by this machine's clock without."""
    match = _RUN.fullmatch(name)
    if match is None:
        return 0.0
    parsed = time.strptime(match[1], _STAMP)
    return float(calendar.timegm(parsed)) if f"{match[1]}Z" in name else time.mktime(parsed)
