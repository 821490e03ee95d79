"""The two keys that this project can hold: Ray's cluster token and the login of an MLflow server.

Each is switched on by one setting that names a file, never by a value: a value in the environment
shows in process listings and in whatever prints its environment. A file that others may read is
refused.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from tuneparts.core import settings
from tuneparts.core.errors import SecurityError

MLFLOW_PLUGIN = "tuneparts"
"""What MLflow calls the part of ours that logs its client in."""


@dataclass(frozen=True)
class Login:
    """Name and password of an MLflow account."""

    user: str
    password: str = field(repr=False)


def use_ray_token() -> bool:
    """Make Ray ask for and send the token of `TUNEPARTS_RAY_TOKEN_FILE`; whether one is set.

    Call it before Ray is initialised: Ray reads the environment once.
    """
    path = settings.current().ray_token_file
    if path is None:
        return False
    _secret(path, "TUNEPARTS_RAY_TOKEN_FILE")
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)
    return True


def tracking_login() -> Login | None:
    """The account in `TUNEPARTS_TRACKING_LOGIN`, a file with the line `user:password`."""
    path = settings.current().tracking_login_file
    if path is None:
        return None
    user, colon, password = _secret(path, "TUNEPARTS_TRACKING_LOGIN").partition(":")
    if not (user and colon and password):
        raise SecurityError(
            f"a login file holds one line `user:password`, but {path} does not. Write it so."
        )
    return Login(user, password)


def use_tracking_login() -> bool:
    """Make MLflow's client send the login; whether one is set.

    The environment names our plugin of MLflow (`tracking.login`), which reads the file at each
    request. The password itself is not there, where every trial and its children would find it.
    """
    if tracking_login() is None:
        return False
    os.environ["MLFLOW_TRACKING_AUTH"] = MLFLOW_PLUGIN
    return True


def _secret(path: Path, setting: str) -> str:
    """The text of a file that nobody else may read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(
            f"{setting} names a readable text file, but got {path}: {error}"
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SecurityError(
            f"only its owner may read a secret, but the mode of {path} is "
            f"{stat.S_IMODE(mode):o}. Run `chmod 600 {path}`."
        )
    if not text:
        raise SecurityError(f"{setting} names a file with a secret in it, but {path} is empty.")
    return text
