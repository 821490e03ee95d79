"""Logs MLflow's client in with the account in `TUNEPARTS_TRACKING_LOGIN`: a plugin of MLflow."""

from mlflow.tracking.request_auth.abstract_request_auth_provider import RequestAuthProvider
from requests.auth import AuthBase, HTTPBasicAuth

from tuneparts.core import access


class LoginProvider(RequestAuthProvider):  # type: ignore[misc]
    """Reads the login from its file whenever a request is sent; it is kept nowhere else."""

    def get_name(self) -> str:
        return access.MLFLOW_PLUGIN

    def get_auth(self) -> AuthBase | None:
        login = access.tracking_login()
        return None if login is None else HTTPBasicAuth(login.user, login.password)
