"""`tuneparts register`: the final net of a trial as an MLflow model."""

from tuneparts import settings
from tuneparts.cli import report
from tuneparts.cli.output import terminal
from tuneparts.redaction import redact


def register(name: str | None, *, arm: str | None, as_name: str | None) -> None:
    """Register the net of a run's best arm, and print how to load it.

    The best arm has the best validation score. Of its seeds the first is taken, because there is
    nothing to choose between replicates.
    """
    results = report.load(name)
    from tuneparts.tracking import models, store

    console = terminal()
    chosen = results.best_arm() if arm is None else arm
    trial = results.selected_trial(chosen)
    uri = store.resolve(settings.current().tracking_uri)
    with console.status(f"registering the net of {trial}"):
        model_uri = results.keep_model(trial)
        version = models.register(uri, model_uri, as_name or results.search.name)
    console.print(f"{trial} is {version}. Load it, also from elsewhere:", highlight=False)
    for line in loading(redact(uri), version):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def loading(uri: str, version: str) -> list[str]:
    """Lines of Python that load a registered net wherever they are pasted.

    Args:
        uri: the store; a path in it is absolute.
        version: `models:/NAME/NUMBER`.
    """
    return [
        "import mlflow",
        f'mlflow.set_tracking_uri("{uri}")',
        f'net = mlflow.pytorch.load_model("{version}")',
    ]
