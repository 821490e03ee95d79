"""Files that a search left on its parent run, read back as text."""

import tempfile
from pathlib import Path

from tuneparts.tracking import store


def text(uri: str, run_id: str, path: str) -> str | None:
    """A text file of a run; None when the run has none of that path.

    Args:
        uri: The store.
        run_id: The run.
        path: Inside its artifacts, such as `metadata.json` or `report/report.html`.
    """
    from mlflow.exceptions import MlflowException

    client = store.client(uri)
    with tempfile.TemporaryDirectory(prefix="tuneparts-artifact-") as folder:
        try:
            found = client.download_artifacts(run_id, path, folder)
            return Path(found).read_text(encoding="utf-8")
        except (MlflowException, OSError):
            return None
