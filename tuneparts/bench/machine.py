"""Describes the machine of a bench, and lets the sides of a comparison take turns on it."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, TypeVar

from tuneparts import provenance

T = TypeVar("T")
_PACKAGES = ("tuneparts", "torch", "ray", "mlflow", "optuna")


def describe() -> dict[str, Any]:
    """Describe this machine, ready for JSON: processor, cores, load and versions."""
    return {
        "cpu": provenance.cpu_model(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def interleave(ways: Mapping[str, Callable[[], T]], *, rounds: int) -> dict[str, list[T]]:
    """Call every way once per round, so that a busy minute hits all of them alike."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            results[name].append(way())
    return results


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, fastest and slowest of repeated measurements."""
    return {"median": statistics.median(values), "fastest": min(values), "slowest": max(values)}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
