"""Bench of a search without training: its trials, its barriers and its start, beside stock Ray."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneparts.bench import barrier, machine
from tuneparts.bench.null import NullConfig
from tuneparts.cpus import usable_cpus
from tuneparts.journal import Event, Row, TrialEnded, read

SETTLE = 5.0
"""Seconds between two ways: Ray's workers of the last one are still ending after it returns."""


def run(*, quick: bool = False) -> dict[str, Any]:
    """Seconds per trial of each way, successive halving with its barriers, and a cold start."""
    from tuneparts.executors.ray import cluster

    for name, value in cluster.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    case = barrier.QUICK if quick else barrier.Case()
    with _ray(usable_cpus()):
        trials = _per_trial(*((6, 1) if quick else (100, 3)), settle=0 if quick else SETTLE)
    with _ray(case.slots), tempfile.TemporaryDirectory() as folder:
        barriers = barrier.rows(case, Path(folder))
    medians = {row["way"]: row["ms per trial"] for row in trials}
    steady = {row["way"]: row["ms in between"] for row in trials}
    wall = {row["way"]: row["first to last interval s"] for row in barriers}
    return {
        "bench": "search",
        "ratios": {
            **{
                f"{name}_over_ours": medians[name] / medians["ours"]
                for name in ("ray_fresh", "ray_reused", "optuna")
            },
            "ray_reused_over_ours_in_between": steady["ray_reused"] / steady["ours"],
            "ray_asha_over_ours": wall["ray, ASHA"] / wall["ours, ASHA"],
        },
        "rows": [*trials, *barriers, *([] if quick else [_cold_start()])],
        "machine": machine.describe(),
    }


def _per_trial(trials: int, rounds: int, *, settle: float) -> list[dict[str, Any]]:
    """Each way, interleaved round by round."""
    from tuneparts.tracking import store

    store.prepare(f"sqlite:///{_store()}")
    ways: dict[str, tuple[int, Callable[[int, Path, _Clock], None]]] = {
        "ours": (trials, _ours),
        "ray_reused": (trials, _ray_reused),
        "ray_fresh": (max(2, trials // 4), _ray_fresh),
        "optuna": (trials, _optuna),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    between: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (count, way) in ways.items():
            time.sleep(settle)
            with tempfile.TemporaryDirectory() as folder:
                clock, start = _Clock(), time.perf_counter()
                way(count, Path(folder), clock)
                seconds[name].append((time.perf_counter() - start) / count)
                between[name].append(clock.mean())
    return [
        {
            "way": name,
            "trials": ways[name][0],
            "rounds": rounds,
            "ms per trial": 1000 * statistics.median(values),
            "fastest": 1000 * min(values),
            "slowest": 1000 * max(values),
            "ms in between": 1000 * statistics.median(between[name]),
        }
        for name, values in seconds.items()
    ]


class _Clock:
    """When trials ended."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def tick(self) -> None:
        self._ends.append(time.perf_counter())

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, TrialEnded):
            self.tick()

    def mean(self) -> float:
        """Seconds from one trial's end to the next, without the start and the end of it all."""
        return (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)


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


def _cold_start() -> dict[str, Any]:
    """Seconds from the command to the first training step of a small search."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TUNEPARTS_RESULTS": folder,
            "TUNEPARTS_TRACKING_URI": f"sqlite:///{_store()}",
        }
        command = [sys.executable, "-m", "tuneparts.cli.main", "search", "rotated_digits"]
        start = time.time()
        subprocess.run(
            [*command, "--scale", "smoke", "--arms", "none", "--seeds", "0"],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
        (journal,) = Path(folder).glob("rotated_digits/*/journal.jsonl")
        first = next(event for event in read(journal) if isinstance(event, Row))
    step = first.time - first.metrics["cost/seconds"]
    return {"way": "ours, cold", "start to first step s": step - start}


def _ours(trials: int, folder: Path, clock: _Clock) -> None:
    """Checkpoints and tracking on, as in `tuneparts search`."""
    from tuneparts.data.config import DataConfig
    from tuneparts.executors import execute
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Arm, RandomSearch, Scale, Search
    from tuneparts.tracking.tracker import SearchCard, Tracker

    search = Search(
        name="bench",
        question="What does a trial cost?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=10, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=1,
        seeds=(0,),
        arms=(
            Arm(
                name="null",
                config=NullConfig(),
                algorithm=RandomSearch(num_trials=trials),
                space={"x": Uniform(low=0.0, high=1.0)},
            ),
        ),
    )
    card = SearchCard(name="bench", scale="smoke", digest=search.digest, commit="", resolved="{}")
    tracker = Tracker(f"sqlite:///{_store()}", folder=folder, search=card)
    execute(search, folder=folder, observers=[tracker, clock])
    tracker.close()


def _ray_fresh(trials: int, folder: Path, clock: _Clock) -> None:
    _stock_ray(trials, folder, clock, reuse=False)


def _ray_reused(trials: int, folder: Path, clock: _Clock) -> None:
    _stock_ray(trials, folder, clock, reuse=True)


def _stock_ray(trials: int, folder: Path, clock: _Clock, *, reuse: bool) -> None:
    """A function trainable with Ray's defaults."""
    from ray import tune

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, **_: Any) -> None:
            clock.tick()

    tune.Tuner(
        _objective,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=reuse),
        run_config=tune.RunConfig(
            name="stock", storage_path=str(folder), verbose=0, callbacks=[Listener()]
        ),
    ).fit()


def _objective(config: dict[str, float]) -> dict[str, float]:
    return {"score": 1 - (config["x"] - 0.7) ** 2}


def _optuna(trials: int, folder: Path, clock: _Clock) -> None:  # noqa: ARG001
    """The defaults: TPE, in memory, one process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    study.optimize(
        lambda t: _objective({"x": t.suggest_float("x", 0, 1)})["score"],
        trials,
        callbacks=[lambda *_: clock.tick()],
    )


def _store() -> Path:
    """One SQLite store for all rounds: making one takes seconds and is not a cost per trial."""
    folder = Path(tempfile.gettempdir()) / f"tuneparts-bench-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return folder / "mlflow.db"
