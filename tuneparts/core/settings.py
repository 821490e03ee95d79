"""Where data, results and the MLflow store live: environment variables and their defaults."""

import os
from dataclasses import dataclass
from pathlib import Path

from tuneparts.core.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """The places outside the code, resolved once per process through `current()`."""

    data_dir: Path | None
    """Folder with data sets (`TUNEPARTS_DATA`); None when unset."""
    results_dir: Path
    """Folder for runs, checkpoints, reports and the default store (`TUNEPARTS_RESULTS`)."""
    cache_dir: Path
    """Folder for decoded and downloaded data (`TUNEPARTS_CACHE`); with the results where the user
    has no home."""
    tracking_uri: str
    """MLflow store (`TUNEPARTS_TRACKING_URI`, then `MLFLOW_TRACKING_URI`, then a SQLite file)."""
    interval_limit: float = 6 * 3600.0
    """Seconds after which an interval counts as hanging (`TUNEPARTS_INTERVAL_LIMIT`)."""
    node_limit: float = 15 * 60.0
    """Seconds to wait for nodes of a cluster that has no room yet (`TUNEPARTS_NODE_LIMIT`)."""
    system_metrics: bool = False
    """Whether trials report CPU, memory and GPU of their worker (`TUNEPARTS_SYSTEM_METRICS`)."""
    decodes_always: bool = False
    """Whether image files are decoded each time that they are read (`TUNEPARTS_DECODE=always`), and
    not once into a file of the cache (`once`)."""
    readers: int | None = None
    """Processes of a trial that read images ahead (`TUNEPARTS_READERS`); None for as many as it has
    CPUs beside its own where it trains on a GPU, and none elsewhere."""
    ray_token_file: Path | None = None
    """File with Ray's cluster token (`TUNEPARTS_RAY_TOKEN_FILE`); setting it turns tokens on."""
    tracking_login_file: Path | None = None
    """File with `user:password` for the MLflow server (`TUNEPARTS_TRACKING_LOGIN`)."""


def current() -> Settings:
    """The settings of this process, read from the environment at the time of the call."""
    data = os.environ.get("TUNEPARTS_DATA")
    results = Path(os.environ.get("TUNEPARTS_RESULTS", "results")).expanduser().absolute()
    cache_root = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    cache = Path(os.environ.get("TUNEPARTS_CACHE", f"{cache_root}/tuneparts"))
    try:
        cache = cache.expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        cache = results / "cache"
    uri = os.environ.get("TUNEPARTS_TRACKING_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    return Settings(
        data_dir=Path(data).expanduser().absolute() if data else None,
        results_dir=results,
        cache_dir=cache.absolute(),
        tracking_uri=uri or f"sqlite:///{results / 'mlflow.db'}",
        interval_limit=_seconds("TUNEPARTS_INTERVAL_LIMIT", Settings.interval_limit),
        node_limit=_seconds("TUNEPARTS_NODE_LIMIT", Settings.node_limit),
        system_metrics=_switch("TUNEPARTS_SYSTEM_METRICS"),
        decodes_always=_word("TUNEPARTS_DECODE", ("once", "always")) == "always",
        readers=_count("TUNEPARTS_READERS"),
        ray_token_file=_file("TUNEPARTS_RAY_TOKEN_FILE"),
        tracking_login_file=_file("TUNEPARTS_TRACKING_LOGIN"),
    )


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ConfigError(f"{name} is a number of seconds above 0, but got `{text}`.")
    return value


def _word(name: str, known: tuple[str, ...]) -> str:
    text = os.environ.get(name, known[0])
    if text not in known:
        raise ConfigError(f"{name} is one of {', '.join(known)}, but got `{text}`.")
    return text


def _count(name: str) -> int | None:
    text = os.environ.get(name)
    if text and not text.isdecimal():
        raise ConfigError(f"{name} is a number of processes, but got `{text}`.")
    return int(text) if text else None


def _switch(name: str) -> bool:
    text = os.environ.get(name, "0")
    if text not in {"0", "1"}:
        raise ConfigError(f"{name} is 1 to turn it on, or 0, but got `{text}`.")
    return text == "1"


def _file(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value).expanduser().absolute() if value else None
