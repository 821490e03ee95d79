"""`tuneparts register`: the final net of a trial as an MLflow model."""

from rich.console import Console

from tuneparts import api, settings


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
        model_uri = results.keep_model(trial)
        version = models.register(uri, model_uri, as_name or results.search.name)
    console.print(f"{trial} is {version}", highlight=False)
    console.print(f'load it: mlflow.pytorch.load_model("{version}")', highlight=False)
