"""Where data, results and the MLflow store live: environment variables and their defaults."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from tuneparts.core.config import parse

_Place = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
_Seconds = Annotated[float, Field(gt=0, lt=1e9)]


def _usual_cache(fields: dict[str, Any]) -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tuneparts"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(fields["results_dir"], "cache")


class Settings(BaseModel):
    """The places outside the code, by the environment variables that name them."""

    model_config = ConfigDict(frozen=True, validate_default=True)

    data_dir: _Place | None = Field(None, alias="TUNEPARTS_DATA")
    """Folder with data sets; None when unset."""
    results_dir: _Place = Field(Path("results"), alias="TUNEPARTS_RESULTS")
    """Folder for runs, checkpoints, reports and the default store."""
    cache_dir: _Place = Field(default_factory=_usual_cache, alias="TUNEPARTS_CACHE")
    """Folder for decoded and downloaded data; with the results where the user has no home."""
    tracking_uri: str = Field(
        default_factory=lambda fields: f"sqlite:///{fields['results_dir'] / 'mlflow.db'}",
        validation_alias=AliasChoices("TUNEPARTS_TRACKING_URI", "MLFLOW_TRACKING_URI"),
    )
    interval_limit: _Seconds = Field(6 * 3600.0, alias="TUNEPARTS_INTERVAL_LIMIT")
    """After which an interval counts as hanging."""
    node_limit: _Seconds = Field(15 * 60.0, alias="TUNEPARTS_NODE_LIMIT")
    """To wait for nodes of a cluster that has no room yet."""
    system_metrics: bool = Field(False, alias="TUNEPARTS_SYSTEM_METRICS")
    """Whether trials report CPU, memory and GPU of their worker."""
    decode: Literal["once", "always"] = Field("once", alias="TUNEPARTS_DECODE")
    """Whether image files are decoded once into a file of the cache, or each time they are read."""
    readers: int | None = Field(None, ge=0, alias="TUNEPARTS_READERS")
    """Processes of a trial that read images ahead; None for as many as it has CPUs next to its own
    where it trains on a GPU, and none elsewhere."""
    ray_token_file: _Place | None = Field(None, alias="TUNEPARTS_RAY_TOKEN_FILE")
    """File with Ray's cluster token; setting it turns tokens on."""
    tracking_login_file: _Place | None = Field(None, alias="TUNEPARTS_TRACKING_LOGIN")
    """File with `user:password` for the MLflow server."""


def current() -> Settings:
    """The settings of this process, read from the environment at the time of the call."""
    return parse(Settings, {name: value for name, value in os.environ.items() if value})
