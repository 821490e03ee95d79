"""The observer that mirrors a search to MLflow without ever making it wait."""

import time
from collections.abc import Mapping
from pathlib import Path

from tuneparts.journal import Event
from tuneparts.tracking import runmap, store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.discreet import DiscreetClient
from tuneparts.tracking.items import Answer, Artifact, Closing, Tags
from tuneparts.tracking.mirror import Mirror
from tuneparts.tracking.pending import Status
from tuneparts.tracking.writer import Stats, Writer

__all__ = ["SearchCard", "Stats", "Status", "Tracker"]


class Tracker:
    """One parent run for this invocation, one child run per trial.

    A tracker over the folder of a former process goes on with the same runs. Give it all events
    of the journal again: what the store has is left alone, what it lacks is sent.
    """

    def __init__(
        self, uri: str, *, folder: Path, search: SearchCard, interval: float = 1.0
    ) -> None:
        """Open the store and start the writer thread; a server need not answer yet.

        Args:
            uri: The store, as `store.resolve` returns it.
            folder: Folder of the run; `tracking.json` is kept there.
            search: What the parent run shows.
            interval: Seconds that points are gathered before they are sent.
        """
        uri = store.resolve(uri)
        known = runmap.load(folder)
        self._mirror = Mirror(
            DiscreetClient(store.client(uri)),
            uri=uri,
            folder=folder,
            card=search,
            run_map=known or runmap.fresh(folder),
            start=time.time(),
            is_resumed=known is not None,
        )
        self._writer = Writer(self._mirror, interval=interval)

    def on_event(self, event: Event) -> None:
        """Take one event; microseconds, no I/O."""
        self._writer.put(event)

    def log_artifact(self, path: Path) -> None:
        """Copy a file or folder to the parent run; it must stay in place until flushed."""
        self._writer.put(Artifact(path))

    def describe(self, answer: str) -> None:
        """Put the answer, in Markdown, into the description of the parent run."""
        self._writer.put(Answer(answer))

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to a run that is in the store already."""
        self._writer.put(Tags(run_id, tags))

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything so far is in the store; returns whether it is."""
        return self._writer.flush(timeout)

    def close(self, status: Status = "FINISHED", *, timeout: float = 30.0) -> list[str]:
        """End the parent run, end what still runs as KILLED, and return the problems.

        Gives up after `timeout` seconds without progress. What is then missing in the store is
        still in the journal.
        """
        self._writer.put(Closing(status, time.time()))
        if not self._writer.close(timeout):
            stats = self._writer.stats
            self._mirror.problems.add(
                "not in the store",
                f"the store did not answer for {timeout:g} s ({stats.last_error}); the journal "
                "has everything. Run `tuneparts resume` when it is back.",
                stats.waiting,
            )
        return self.problems()

    def problems(self) -> list[str]:
        """What could not be tracked, one line per kind; empty when all is well."""
        return self._mirror.problems.lines()

    @property
    def stats(self) -> Stats:
        """Points sent, items waiting, retries and the last error."""
        return self._writer.stats

    @property
    def parent_run_id(self) -> str | None:
        """Run id of the parent; None until the store has answered once."""
        return self._mirror.parent
