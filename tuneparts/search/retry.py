"""Trials that failed are tried again: `tuneparts resume --retry-failed`."""

import time
from dataclasses import dataclass
from pathlib import Path

from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.journal import Journal, TrialId, TrialRetried
from tuneparts.search.plan import Plan
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder


@dataclass(frozen=True)
class Retry:
    """What became of the failed trials of a run."""

    retried: tuple[TrialId, ...]
    """They will run again, from their last checkpoint."""
    decided: tuple[TrialId, ...]
    """The search has already gone on from their failure, so they stay as they are."""


def retry_failed(search: Search, journal: Path, storage: str) -> Retry:
    """Void the ends of the trials that failed, so that whoever continues the run runs them.

    The caller holds the lock of the run.

    Args:
        search: the resolved search.
        journal: the file `journal.jsonl` of its run.
        storage: where its checkpoints lie.
    """
    opened = Journal(journal)
    try:
        plan = Plan(search, opened)
        ends = {trial: record.end for trial, record in opened.trials.items()}
        failed = [t for t, end in ends.items() if end is not None and end.outcome == "failed"]
        retried = tuple(trial for trial in failed if not plan.has_used(trial))
        store = CheckpointStore(Folder(storage))
        for trial in retried:
            store.forget_hangs(trial)
            opened.append(TrialRetried(trial, time.time()))
    finally:
        opened.close()
    return Retry(retried, tuple(trial for trial in failed if trial not in retried))
