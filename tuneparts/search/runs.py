"""The folder of one run of a search: the resolved search, its journal, checkpoints and reports."""

import json
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts import atomic
from tuneparts.config import parse
from tuneparts.errors import ConfigError, DataMissingError, StorageError
from tuneparts.search import code
from tuneparts.search.code import Code

if TYPE_CHECKING:  # brings torch, and a listing of runs does not need it
    from tuneparts.search.spec import Search

_RUN = re.compile(r"[a-z][a-z0-9_]*/\d{8}-\d{6}-[0-9a-f]{12}")


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
        except (OSError, ValueError, RecursionError) as error:
            raise DataMissingError(
                f"a run has a readable run.json, but {self.folder} has not: {error}"
            ) from error
        return card

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


def default_storage(folder: Path) -> str:
    """Where checkpoints of a run lie when no other storage was given."""
    return str(folder.absolute() / "trials")


def create(root: Path, search: "Search", **facts: Any) -> Run:
    """Make the folder of a new run, and write its card.

    Args:
        root: the results folder.
        search: the resolved search.
        facts: what else the card says: command, commit, versions, storage.

    Raises:
        StorageError: The folder cannot be made, or is there already.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    run = Run(root, f"{search.name}/{stamp}-{search.digest}")
    card = {"search": search.model_dump(mode="json"), "digest": search.digest, **facts}
    try:
        run.folder.mkdir(parents=True, exist_ok=False)
        card["code"] = code.keep(search, run.folder / "code").digest
        atomic.write_text(run.folder / "run.json", json.dumps(card, indent=2))
    except OSError as error:
        raise StorageError(f"no run can begin in {root.absolute()}: {error}") from error
    # What was just written need not be read back.
    run.__dict__.update(card=card, search=search)
    return run


def listing(root: Path) -> list[Run]:
    """List all runs under a results folder, oldest first."""
    cards = root.glob("*/*/run.json")
    names = [str(card.parent.relative_to(root)) for card in cards]
    return [Run(root, n) for n in sorted(names, key=lambda n: n.split("/")[1]) if _RUN.fullmatch(n)]


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
