"""What a search says of itself in the store: the face of its parent run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuneparts.journal import TrialId
from tuneparts.tracking.dataset import DataFacts

KEY_TAG = "tuneparts.key"
"""Tag with the key of the run folder, on the parent and every trial."""
KIND_TAG = "tuneparts.kind"
"""Tag that is `search` on parent runs and `trial` on their children."""
RUN_TAG = "tuneparts.run"
"""Tag with the name of the run folder."""
TRIAL_TAG = "tuneparts.trial"
"""Tag with the trial as text."""
COUNTS_TAG = "tuneparts.trials"
"""Tag on parent runs: how many trials ended how, as JSON."""
KIND_OF_EXPERIMENT_TAG = "mlflow.experimentKind"
"""MLflow's own tag for which view of an experiment its UI opens."""
PARENT_TAG = "mlflow.parentRunId"
"""MLflow's own tag for nested runs."""
NOTE_TAG = "mlflow.note.content"
"""MLflow's own tag for the description of a run or an experiment, in Markdown."""
COLOUR_TAG = "mlflow.runColor"
"""MLflow's own tag for the colour of a run in its charts."""
SELECTED_TAG = "selected"
"""Tag that is `yes` on the trials that stand for their arm and seed in the report."""


@dataclass(frozen=True)
class SearchCard:
    """One invocation of a search."""

    name: str
    """Name of the search, which is also the name of the MLflow experiment."""
    scale: str
    """smoke, cpu or paper."""
    digest: str
    """Digest of the resolved search."""
    commit: str
    """Commit of the code, empty outside a checkout."""
    resolved: str
    """The resolved search as JSON text; kept as the artifact `search.json`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch, ray and the rest; kept as tags `version.<name>`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Whatever else should be searchable in MLflow."""
    question: str = ""
    """What the search asks; the first line of every description."""
    metadata: str = ""
    """The search as reports tell it, as JSON text; kept as the artifact `metadata.json`."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Colour of each arm, the same as in the report."""
    data: DataFacts | None = None
    """The data set, logged as an input of the parent and of every trial."""

    def shared_tags(self) -> dict[str, str]:
        """Tags of the parent and of every trial."""
        own = {"search": self.name, "scale": self.scale, "digest": self.digest}
        return {**self.tags, **own, "commit": self.commit}

    def parent_tags(self, key: str, folder: Path) -> dict[str, str]:
        """Tags of the parent run."""
        return {
            **self.shared_tags(),
            **{f"version.{name}": text for name, text in self.versions.items()},
            KIND_TAG: "search",
            KEY_TAG: key,
            RUN_TAG: folder.name,
        }

    def trial_tags(self, key: str, parent: str, trial: TrialId) -> dict[str, str]:
        """Tags of the run of one trial."""
        return {
            **self.shared_tags(),
            KIND_TAG: "trial",
            KEY_TAG: key,
            PARENT_TAG: parent,
            TRIAL_TAG: str(trial),
            "arm": trial.arm,
            "seed": str(trial.seed),
            "index": str(trial.index),
            **({COLOUR_TAG: self.colours[trial.arm]} if trial.arm in self.colours else {}),
        }
