"""The data of a search as MLflow wants it: an input of a run."""

import json
from dataclasses import dataclass
from typing import Any

TRAINING = "training"
"""What MLflow calls the use of the data; its own word for it."""


@dataclass(frozen=True)
class DataFacts:
    """A data set by what determines it."""

    name: str
    digest: str
    """Changes with anything in the config that could change an example or a split."""
    config: str
    """The config as JSON text; with it `DataConfig` gives the same examples again."""

    def as_input(self) -> Any:
        """MLflow's form of it."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(
            name=self.name,
            digest=self.digest,
            source_type="code",
            source=json.dumps({"tags": json.loads(self.config)}),
            profile=self.config,
        )
        return DatasetInput(data, [InputTag("mlflow.data.context", TRAINING)])
