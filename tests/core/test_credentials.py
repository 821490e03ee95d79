import os
from pathlib import Path

import pytest

from tuneparts.core import credentials
from tuneparts.core.errors import SecurityError


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    return path


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch) -> None:
    for name in (
        "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "MLFLOW_TRACKING_AUTH",
        "TUNEPARTS_RAY_TOKEN_FILE", "TUNEPARTS_TRACKING_LOGIN",
    ):  # fmt: skip
        monkeypatch.setenv(name, "")  # so that what the code sets is undone as well
        monkeypatch.delenv(name)


def test_one_setting_turns_ray_tokens_on(secret, monkeypatch) -> None:
    assert not credentials.use_ray_token()
    assert "RAY_AUTH_MODE" not in os.environ
    secret.write_text("a-token")
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(secret))
    assert credentials.use_ray_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(secret)
    assert "a-token" not in os.environ.values()


def test_one_setting_logs_in_to_mlflow(secret, monkeypatch) -> None:
    assert credentials.tracking_login() is None
    assert not credentials.use_tracking_login()
    secret.write_text("me:pass:word\n")
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(secret))
    assert credentials.tracking_login() == credentials.Login("me", "pass:word")
    assert "pass:word" not in repr(credentials.tracking_login())
    assert credentials.use_tracking_login()
    assert os.environ["MLFLOW_TRACKING_AUTH"] == "tuneparts"
    assert "pass:word" not in " ".join(os.environ.values())


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused(secret, monkeypatch, mode: int) -> None:
    secret.write_text("a-token")
    secret.chmod(mode)
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(secret))
    with pytest.raises(SecurityError, match=r"only its owner.*chmod 600"):
        credentials.use_ray_token()
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("content", ["", "nobody", "me:", ":word"])
def test_a_login_without_both_parts_is_refused(secret, monkeypatch, content: str) -> None:
    secret.write_text(content)
    monkeypatch.setenv("TUNEPARTS_TRACKING_LOGIN", str(secret))
    with pytest.raises(SecurityError, match="file"):
        credentials.tracking_login()


def test_a_missing_file_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RAY_TOKEN_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(SecurityError, match="nowhere"):
        credentials.use_ray_token()
