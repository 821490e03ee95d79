from pathlib import Path

import pytest

from tuneparts.core import settings
from tuneparts.core.errors import ConfigError


def test_defaults(monkeypatch, tmp_path) -> None:
    for name in (
        "TUNEPARTS_DATA",
        "TUNEPARTS_RESULTS",
        "TUNEPARTS_TRACKING_URI",
        "MLFLOW_TRACKING_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    here = settings.current()
    assert here.data_dir is None
    assert here.results_dir == tmp_path / "results"
    assert here.tracking_uri == f"sqlite:///{tmp_path}/results/mlflow.db"


def test_the_environment_wins(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TUNEPARTS_DATA", str(tmp_path))
    monkeypatch.setenv("TUNEPARTS_RESULTS", "~/elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://one")
    assert settings.current().data_dir == tmp_path
    assert settings.current().results_dir == Path.home() / "elsewhere"
    assert settings.current().tracking_uri == "http://one"
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", "http://two")
    assert settings.current().tracking_uri == "http://two"


def test_the_interval_limit_is_a_number_of_seconds(monkeypatch) -> None:
    monkeypatch.delenv("TUNEPARTS_INTERVAL_LIMIT", raising=False)
    assert settings.current().interval_limit == 21600
    monkeypatch.setenv("TUNEPARTS_INTERVAL_LIMIT", "1.5")
    assert settings.current().interval_limit == 1.5
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("TUNEPARTS_INTERVAL_LIMIT", wrong)
        with pytest.raises(ConfigError, match="`TUNEPARTS_INTERVAL_LIMIT` = "):
            settings.current()


def test_a_user_without_a_home_keeps_the_cache_with_the_results(monkeypatch, tmp_path) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_CACHE_HOME", "TUNEPARTS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    assert settings.current().cache_dir == tmp_path / "cache"
