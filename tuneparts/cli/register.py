"""`tuneparts register`: the final net of a trial as an MLflow model."""

from rich.console import Console

from tuneparts import api, settings
from tuneparts.errors import DataMissingError
from tuneparts.journal import TrialId


def register(name: str | None, *, arm: str | None, as_name: str | None) -> None:
    """Register the net of a run's best arm, and print how to load it.

    The best arm has the best validation score. Of its seeds the first is taken, because there is
    nothing to choose between replicates.
    """
    from tuneparts.tracking import models, store

    results = api.load(name)
    console = Console()
    chosen = results.best_arm() if arm is None else arm
    trial = results.selected_trial(chosen)
    uri = store.resolve(settings.current().tracking_uri)
    with console.status(f"registering the net of {trial}"):
        model_uri = keep(results, trial)
        version = models.register(uri, model_uri, as_name or results.search.name)
    console.print(f"{trial} is {version}", highlight=False)
    console.print(f'load it: mlflow.pytorch.load_model("{version}")', highlight=False)


def keep(results: api.Results, trial: TrialId) -> str:
    """Log the final net of a trial to its MLflow run, unless it is there; returns the model's URI.

    Raises:
        DataMissingError: MLflow does not know the trial yet, or its last state is gone.
    """
    import numpy as np

    from tuneparts.tracking import models, store

    uri = store.resolve(settings.current().tracking_uri)
    run_id = results.run_ids.get(trial)
    if run_id is None:
        raise DataMissingError(
            f"a model belongs to the MLflow run of its trial, but {trial} has none in the store "
            f"yet. Send it with `tuneparts sync {results.run.name}`."
        )
    found = models.logged(uri, run_id)
    if found is not None:
        return found
    example = np.asarray(results.search.data.load().test.inputs[:4])
    return models.log(uri, run_id, results.learner(trial).final_module(), example)
