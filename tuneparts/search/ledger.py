"""The journal of a search that runs, with those who want to hear of every event."""

import time
from collections.abc import Sequence

from tuneparts.search.journal import Event, Journal, Observer, Outcome, TrialEnded, TrialId, tell


class Ledger:
    """Writes events down, and then tells observers of those that are news.

    Args:
        journal: what has happened so far.
        observers: told of every event.
    """

    def __init__(self, journal: Journal, observers: Sequence[Observer] = ()) -> None:
        self.journal = journal
        self._observers = observers

    def record(self, event: Event) -> bool:
        """Write an event to the journal, and tell observers if it is news; returns whether."""
        is_news = self.journal.append(event)
        if is_news:
            tell(self._observers, event)
        return is_news

    def end(self, trial: TrialId, outcome: Outcome, message: str = "") -> None:
        """Record that a trial will report nothing more."""
        self.record(TrialEnded(trial, outcome, time.time(), message))
