"""The folder of one run of a search: the resolved search, its journal, checkpoints and reports."""

import calendar
import difflib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts.core import atomic
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, DataMissingError, StorageError, TunepartsError
from tuneparts.search import code, events
from tuneparts.search.code import Code

if TYPE_CHECKING:  # brings torch, and a listing of runs does not need it
    from tuneparts.search.spec import Search

VERSION = 2
"""Of the card; one of another version is refused."""
_RUN = re.compile(r"[a-z][a-z0-9_]*/(\d{8}-\d{6})Z-[0-9a-f]{12}")
_STAMP = "%Y%m%d-%H%M%S"
_MOST_AT_ONCE = 60
"""Runs of one search that can be started in the same second; each waits for those before it."""


@dataclass(frozen=True)
class Run:
    """One run of a search, and its folder. Its card is read once; `extend` gives a new object."""

    root: Path
    """The results folder."""
    name: str
    """`SEARCH/TIME-DIGEST`."""

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @cached_property
    def card(self) -> dict[str, Any]:
        """What was written down at the start: search, command, commit, storage."""
        try:
            path = atomic.inside(self.folder, self.folder / "run.json")
            card: Any = json.loads(path.read_text("utf-8"))
            if not isinstance(card, dict) or "search" not in card:
                raise ValueError("it holds no search")
            if card.get("version") != VERSION:
                raise ConfigError(
                    f"run.json format {card.get('version')!r}: another version of tuneparts wrote "
                    f"{self.name}, and this one reads format {VERSION}. Read it with that version."
                )
            # Facts that a card may lack.
            usual: dict[str, Any] = {"commit": None, "storage": None, "address": None}
            return {"command": "", "versions": {}, **usual, **card}
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
            match = _RUN.fullmatch(self.name)
            named = match and calendar.timegm(time.strptime(match[1], _STAMP))
            return float(named or 0.0)

    @property
    def has_begun(self) -> bool:
        """Whether a worker ever took up a trial of it."""
        path = self.folder / "journal.jsonl"
        try:
            return any(not isinstance(one, events.TrialStarted) for one in events.read(path))
        except FileNotFoundError:
            return False
        except TunepartsError:
            return True  # it is damaged, so there is something to report

    @property
    def digest(self) -> str:
        """Of the search as it is now; of a damaged card that in the run's name."""
        try:
            return str(self.card["digest"])
        except (TunepartsError, KeyError):
            return self.name.rpartition("-")[2]

    @property
    def storage(self) -> str:
        """Path or URI where the checkpoints, artifacts and logs of its trials lie."""
        named: str | None = self.card["storage"]
        return default_storage(self.folder) if named is None else named

    @cached_property
    def search(self) -> "Search":
        """The resolved search, as the run has it now; its classes are imported, none is called."""
        from tuneparts.search.arm import is_read
        from tuneparts.search.spec import Search

        before = is_read.set(True)
        try:
            with self.code.importable():
                return parse(Search, self.card["search"])
        finally:
            is_read.reset(before)

    @cached_property
    def code(self) -> Code:
        return Code.of(self.folder / "code")


def is_name(text: str) -> bool:
    """Whether a text reads like the full name of a run, `SEARCH/TIME-DIGEST`."""
    return _RUN.fullmatch(text) is not None


def default_storage(folder: Path) -> str:
    """Where checkpoints of a run lie when no other storage was given."""
    return str(atomic.inside(folder, folder.absolute() / "trials"))


def create(root: Path, search: "Search", **facts: Any) -> Run:
    """Make the folder of a new run in the results folder, and write its card.

    `facts` is what else the card says. Each run has a folder of its name in its storage.
    """
    try:
        run, now = _new_folder(root, search)
        if facts.get("storage") is not None:
            facts["storage"] = f"{facts['storage'].rstrip('/')}/{run.name}"
        card = {
            "version": VERSION,
            "created": now,
            "search": search.model_dump(mode="json"),
            "digest": search.digest,
            **facts,
        }
        card["code"] = code.keep(search, run.folder / "code").digest
        atomic.write_text(run.folder / "run.json", json.dumps(card, indent=2))
    except OSError as error:
        raise StorageError(f"no run can begin in {root.absolute()}: {error}") from error
    # What was just written need not be read back.
    run.__dict__.update(card=card, search=search)
    return run


def extend(run: Run, search: "Search", news: Sequence[str], **facts: Any) -> Run:
    """Write down that a run has grown; the caller holds its lock.

    `news` says what is new in words, `facts` who asked for it: command, commit, versions.
    """
    step = {
        "time": time.time(),
        "news": list(news),
        "digest": search.digest,
        **facts,
        "before": {"digest": run.card["digest"], "search": run.card["search"]},
    }
    card = {
        **run.card,
        "search": search.model_dump(mode="json"),
        "digest": search.digest,
        "history": [*run.card.get("history", []), step],
        "code": Code.of(run.folder / "code").digest,
    }
    try:
        atomic.write_text(run.folder / "run.json", json.dumps(card, indent=2), fsync=True)
    except OSError as error:
        raise StorageError(f"{run.name} cannot be extended: {error}") from error
    return Run(run.root, run.name)


def _new_folder(root: Path, search: "Search") -> tuple[Run, float]:
    """Make a folder that is named by the time; of several that start at once each gets its own."""
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
            time.sleep(1 - now % 1 + 0.01)  # until the next second
    raise StorageError(
        f"{root.absolute()}: no unique run folder in {_MOST_AT_ONCE} attempts, a second each."
    )


def listing(root: Path) -> list[Run]:
    """List all runs under a results folder, oldest first by the time that their cards say."""
    cards = root.glob("*/*/run.json")
    names = [str(card.parent.relative_to(root)) for card in cards]
    found = [Run(root, name) for name in names if _RUN.fullmatch(name)]
    return sorted(found, key=lambda run: (run.created, run.name))


def newest_of(root: Path, search: "Search") -> Run | None:
    """Find the newest run of this very search: the same name and digest."""
    same = [run for run in listing(root) if run.name.startswith(f"{search.name}/")]
    same = [run for run in same if run.digest == search.digest]
    return same[-1] if same else None


def named(root: Path, name: str | None, *, begun: bool = False) -> Run:
    """Find a run by its name, or the newest one when there is no name.

    A name is `SEARCH/TIME-DIGEST`, its second half, or that of a search for its newest run. With
    `begun`, runs of which no trial ever ran are found by their full names only.
    """
    runs = listing(root)
    if not runs and root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
        raise StorageError(f"runs are read from {root}, but: Permission denied.")
    exact = [run for run in runs if name is not None and name in (run.name, run.name.split("/")[1])]
    if exact:
        return exact[0]
    candidates = [run for run in runs if name in (None, run.name.split("/")[0])]
    newest = next((run for run in reversed(candidates) if run.has_begun or not begun), None)
    if newest is not None:
        return newest
    if candidates:
        raise DataMissingError(
            f"no trial of {candidates[-1].name} has run. Continue it by its full name with "
            "`tuneparts resume`, or start with `tuneparts search`."
        )
    if name is None:
        raise DataMissingError(
            f"there is no run under {root} yet. Start with `tuneparts search rotated_digits`."
        )
    known = ", ".join(run.name for run in runs[-5:]) or "none"
    names = {word for run in runs for word in (run.name, *run.name.split("/"))}
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    raise ConfigError(f"`{name}` is not a run under {root}.{hint} The newest: {known}.")
