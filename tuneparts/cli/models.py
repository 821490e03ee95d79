"""`tuneparts register`: final nets from checkpoints to MLflow models."""

from typing import Any

from rich.console import Console

from tuneparts import settings
from tuneparts.cli import answers
from tuneparts.errors import ConfigError, DataMissingError, UnknownNameError
from tuneparts.journal import TrialId, TrialStarted, read
from tuneparts.search import runs


def register(name: str | None, *, arm: str | None, as_name: str | None) -> None:
    """Register the model of a run's best arm, and print how to load it.

    The best arm is the one that the report names first. Among its seeds the first is taken:
    to choose by score would choose by test data.
    """
    from tuneparts.reports.run_data import ANSWERED_BY
    from tuneparts.tracking import models, store

    run = runs.named(settings.current().results_dir, name)
    console = Console()
    run_data = answers.gather(run)
    arms = run_data.verdict(ANSWERED_BY).ranked
    if not arms:
        raise DataMissingError(f"a model comes from a finished trial, but {run.name} has none yet.")
    chosen = arms[0] if arm is None else arm
    if chosen not in arms:
        raise UnknownNameError("arm with a finished trial", chosen, arms)
    row = run_data.selected[run_data.selected["arm"] == chosen].iloc[0]
    uri = store.resolve(settings.current().tracking_uri)
    with console.status(f"registering the model of {row['trial']}"):
        model_uri = keep(run, run.search(), str(row["trial"]), str(row["run_id"]), uri)
        version = models.register(uri, model_uri, as_name or run.name.partition("/")[0])
    console.print(f"{row['trial']} is {version}", highlight=False)
    console.print(f'load it: mlflow.pytorch.load_model("{version}")', highlight=False)


def keep(run: runs.Run, search: Any, trial: str, run_id: str, uri: str) -> str:
    """Log the final net of a trial to its MLflow run; returns the model's URI."""
    import numpy as np

    from tuneparts.tracking import models
    from tuneparts.training.served import served

    found = models.logged(uri, run_id)
    if found is not None:
        return found
    learner = _learner(run, search, TrialId.parse(trial))
    example = np.asarray(search.data.load().test.inputs[:4])
    return models.log(uri, run_id, served(learner), example)


def _learner(run: runs.Run, search: Any, trial: TrialId) -> Any:
    """The learner of a trial in its final state."""
    from tuneparts.run.worker import restore_learner

    configs = [
        event.config
        for event in read(run.folder / "journal.jsonl")
        if isinstance(event, TrialStarted) and event.trial == trial
    ]
    if not configs:
        raise ConfigError(f"{run.name} has no trial {trial}. See `tuneparts report {run.name}`.")
    return restore_learner(search, run.storage(), trial, configs[-1])
