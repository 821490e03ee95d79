"""MLflow's server behind a token, as an app plugin: `mlflow server --app-name tuneparts`."""

from tuneparts.doorkeeper import Doorkeeper


def create_app() -> Doorkeeper:
    """MLflow's application, for those who know the token in this process's environment."""
    from mlflow.server.fastapi_app import app

    return Doorkeeper(app)
