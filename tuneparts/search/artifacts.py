"""The artifact store: tables that learners leave, CSV files beside the states of their trials."""

from collections.abc import Mapping

from tuneparts.search.events import TrialId
from tuneparts.search.storage import Folder
from tuneparts.training.learner import Columns, to_csv


class ArtifactStore:
    """The tables that the trials of a search left.

    Example:
        >>> import tempfile
        >>> store = ArtifactStore(Folder(tempfile.mkdtemp()))
        >>> store.put(TrialId("pwfn", 0, 0), {"weights": {"mu": [0.5]}})
        >>> print(store.find("pwfn/seed0/00000", "weights").strip())
        mu
        0.5
    """

    def __init__(self, storage: Folder) -> None:
        self._storage = storage

    def put(self, trial: TrialId, tables: Mapping[str, Columns]) -> None:
        """Keep the tables of a finished trial; tables of the same name are replaced."""
        for name, columns in tables.items():
            self._folder(trial).write(f"{name}.csv", to_csv(columns).encode())

    def find(self, trial: str, name: str) -> str | None:
        """Read a table as CSV text; None where the trial left none of this name."""
        folder = self._folder(TrialId.parse(trial))
        return folder.read(f"{name}.csv").decode() if f"{name}.csv" in folder.names() else None

    def _folder(self, trial: TrialId) -> Folder:
        # The name is older than the class: runs that are already on disk use it.
        return self._storage.child(*str(trial).split("/"), "exhibits")
