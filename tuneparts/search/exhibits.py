"""Where the tables that learners leave lie: beside the states of their trials."""

from collections.abc import Mapping

from tuneparts.journal import TrialId
from tuneparts.search.storage import Folder
from tuneparts.training.exhibits import Columns, to_csv


class Exhibits:
    """The tables of all trials of a search, as CSV files."""

    def __init__(self, storage: Folder) -> None:
        self._storage = storage

    def put(self, trial: TrialId, tables: Mapping[str, Columns]) -> None:
        """Keep the tables of a finished trial; the same again changes nothing."""
        for name, columns in tables.items():
            self._folder(trial).write(f"{name}.csv", to_csv(columns).encode())

    def find(self, trial: str, name: str) -> str | None:
        """A table as CSV text; None where the trial left none of this name."""
        folder = self._folder(TrialId.parse(trial))
        return folder.read(f"{name}.csv").decode() if f"{name}.csv" in folder.names() else None

    def _folder(self, trial: TrialId) -> Folder:
        return self._storage.child(*str(trial).split("/"), "exhibits")
