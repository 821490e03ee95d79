"""Bench of a search without training: its trials, its barriers and its start, beside stock Ray.

Cases are files of their own: `trials` (`null_trials`), `barrier` and `start` (`cold_start`). Rows
are told as they come, because the whole takes minutes. A fourth case, `algorithms`, has nothing to
stand beside and runs only when it is asked for.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tuneparts.bench import barrier, cold_start, machine, null_trials
from tuneparts.bench.timing import tell
from tuneparts.cpus import usable_cpus
from tuneparts.errors import UnknownNameError

Row: TypeAlias = dict[str, Any]
Found: TypeAlias = tuple[list[Row], dict[str, float]]
"""Rows and ratios of a case."""


def run(*, quick: bool = False, only: str | None = None) -> dict[str, Any]:
    """Seconds per trial of each way, successive halving with its barriers, and a cold start.

    Args:
        quick: smaller, for trying out.
        only: this case.
    """
    if only is not None and only not in CASES:
        raise UnknownNameError("case", only, CASES)
    from tuneparts.executors.ray import cluster

    for name, value in cluster.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    rows: list[Row] = []
    ratios: dict[str, float] = {}
    for case in ("trials", "barrier", "start") if only is None else [only]:
        found, ratio = CASES[case](quick)
        rows += found
        ratios |= ratio
    return {"bench": "search", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _trials(quick: bool) -> Found:
    trials, rounds = (6, 1) if quick else (100, 3)
    with _ray(usable_cpus()):
        return null_trials.compare(trials, rounds, tell=tell)


def _barrier(quick: bool) -> Found:
    case = barrier.QUICK if quick else barrier.CASE
    with _ray(case.slots), tempfile.TemporaryDirectory() as folder:
        return barrier.compare(case, Path(folder), tell=tell)


def _algorithms(quick: bool) -> Found:
    case = barrier.QUICK if quick else barrier.CASE
    with _ray(case.slots), tempfile.TemporaryDirectory() as folder:
        row = barrier.all_algorithms(case, Path(folder))
    tell(row)
    return [row], {"utilisation_of_all_algorithms": row["utilisation"]}


def _start(quick: bool) -> Found:
    return cold_start.compare(1 if quick else 2, tell=tell)


CASES: dict[str, Callable[[bool], Found]] = {
    "trials": _trials,
    "barrier": _barrier,
    "start": _start,
    "algorithms": _algorithms,
}


@contextmanager
def _ray(cpus: int) -> Iterator[None]:
    """A Ray of so many logical CPUs, or the one that this process has joined."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.pop("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", None)  # stock Ray is as it is
    ray.init(address="local", num_cpus=cpus, log_to_driver=False, include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()
