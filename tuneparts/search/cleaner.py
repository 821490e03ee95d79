"""Removes checkpoints that nobody needs any more, beside the search that goes on.

The rule is the plan's: of the trials that ended, the selected one of each replicate keeps its last
state, as does one that failed, for `tuneparts resume --retry-failed`; and a donor keeps it until
it has been copied. Logs and artifacts stay.
"""

import logging
import queue
import threading

from tuneparts.core.errors import TunepartsError
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.journal import TrialId
from tuneparts.search.storage import Folder

_PATIENCE = 60.0
"""Seconds after the end of a search that the rest of the work may take."""
_log = logging.getLogger(__name__)


class Cleaner:
    """A thread that removes the states of trials, since storage may be slow to answer.

    Example:
        >>> import tempfile
        >>> cleaner = Cleaner(tempfile.mkdtemp())
        >>> cleaner.forget(TrialId("none", 0, 0))
        >>> cleaner.close()
    """

    def __init__(self, storage: str) -> None:
        self._store = CheckpointStore(Folder(storage))
        self._trials: queue.SimpleQueue[TrialId | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def forget(self, trial: TrialId) -> None:
        """Remove the checkpoints of a trial some time soon."""
        self._trials.put(trial)

    def close(self) -> None:
        """Finish what was asked for; what a silent storage keeps goes when the run is resumed."""
        self._trials.put(None)
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        while (trial := self._trials.get()) is not None:
            try:
                self._store.remove(trial)
            except (OSError, TunepartsError) as error:  # a state too many does no harm
                _log.warning("the checkpoints of %s could not be removed: %s", trial, error)
