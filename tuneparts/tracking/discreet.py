"""An MLflow client that writes no secret: the one door through which a search reaches the store."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuneparts import redaction

if TYPE_CHECKING:
    from mlflow import MlflowClient


class DiscreetClient:
    """Passes every call on; texts that would be stored lose their secrets first.

    Ids, filters and paths of files are left as they are: they name things, and are not stored.
    """

    def __init__(self, client: "MlflowClient") -> None:
        self._client = client
        self._redactor = redaction.of_process()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_experiment(
        self, name: str, artifact_location: str | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """As MLflow's."""
        tags = self._redactor.texts(tags or {})
        made: str = self._client.create_experiment(name, artifact_location, tags)
        return made

    def create_run(
        self, experiment_id: str | None, *, tags: Mapping[str, str], run_name: str, start_time: int
    ) -> Any:
        """As MLflow's."""
        return self._client.create_run(
            experiment_id,
            start_time=start_time,
            tags=self._redactor.texts(tags),
            run_name=self._redactor.text(run_name),
        )

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence[Any] = (),
        params: Sequence[Any] = (),
        tags: Sequence[Any] = (),
    ) -> None:
        """As MLflow's."""
        self._client.log_batch(run_id, metrics, self._clean(params), self._clean(tags))

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        """As MLflow's."""
        self._client.log_text(run_id, self._redactor.text(text), artifact_file)

    def set_tag(self, run_id: str | None, key: str, value: str) -> None:
        """As MLflow's."""
        self._client.set_tag(run_id, key, self._redactor.text(value))

    def set_experiment_tag(self, experiment_id: str, key: str, value: str) -> None:
        """As MLflow's."""
        self._client.set_experiment_tag(experiment_id, key, self._redactor.text(value))

    def _clean(self, entries: Sequence[Any]) -> list[Any]:
        """Params or tags, name and value."""
        return [
            type(entry)(*pair)
            for entry in entries
            for pair in self._redactor.texts({entry.key: entry.value}).items()
        ]
