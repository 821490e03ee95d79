"""Bench of a trial without training: our runner, stock Ray Tune, and Optuna in one process."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuneparts.bench import machine
from tuneparts.bench.null import NullConfig

SETTLE = 5.0
"""Seconds between two ways: Ray's workers of the last one are still ending after it returns."""


def run(*, quick: bool = False) -> dict[str, Any]:
    """Seconds per trial of each way, interleaved round by round, and their ratios."""
    trials, rounds = (6, 1) if quick else (100, 3)
    import ray

    from tuneparts.executors.ray import cluster
    from tuneparts.tracking import store

    for name, value in cluster.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.pop("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", None)
    store.prepare(f"sqlite:///{_store()}")
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(num_cpus=os.cpu_count(), log_to_driver=False, include_dashboard=False)
    ways: dict[str, tuple[int, Callable[[int, Path], None]]] = {
        "ours": (trials, _ours),
        "ray_reused": (trials, _ray_reused),
        "ray_fresh": (max(2, trials // 4), _ray_fresh),
        "optuna": (trials, _optuna),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    try:
        for _ in range(rounds):
            for name, (count, way) in ways.items():
                time.sleep(0 if quick else SETTLE)
                with tempfile.TemporaryDirectory() as folder:
                    start = time.perf_counter()
                    way(count, Path(folder))
                    seconds[name].append((time.perf_counter() - start) / count)
    finally:
        if started_here:
            ray.shutdown()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "bench": "search",
        "ratios": {
            f"{name}_over_ours": medians[name] / medians["ours"]
            for name in ("ray_fresh", "ray_reused", "optuna")
        },
        "rows": [
            {
                "way": name,
                "trials": ways[name][0],
                "rounds": rounds,
                "ms per trial": 1000 * medians[name],
                "fastest": 1000 * min(values),
                "slowest": 1000 * max(values),
            }
            for name, values in seconds.items()
        ],
        "machine": machine.describe(),
    }


def _ours(trials: int, folder: Path) -> None:
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
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    card = SearchCard(name="bench", scale="smoke", digest=search.digest, commit="", resolved="{}")
    tracker = Tracker(f"sqlite:///{_store()}", folder=folder, search=card)
    execute(search, folder=folder, observers=[tracker])
    tracker.close()
    del os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"]


def _ray_fresh(trials: int, folder: Path) -> None:
    _stock_ray(trials, folder, reuse=False)


def _ray_reused(trials: int, folder: Path) -> None:
    _stock_ray(trials, folder, reuse=True)


def _stock_ray(trials: int, folder: Path, *, reuse: bool) -> None:
    """A function trainable with Ray's defaults."""
    from ray import tune

    tune.Tuner(
        _objective,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=reuse),
        run_config=tune.RunConfig(name="stock", storage_path=str(folder), verbose=0),
    ).fit()


def _objective(config: dict[str, float]) -> dict[str, float]:
    return {"score": 1 - (config["x"] - 0.7) ** 2}


def _optuna(trials: int, folder: Path) -> None:  # noqa: ARG001
    """The defaults: TPE, in memory, one process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    study.optimize(lambda t: _objective({"x": t.suggest_float("x", 0, 1)})["score"], trials)


def _store() -> Path:
    """One SQLite store for all rounds: making one takes seconds and is not a cost per trial."""
    folder = Path(tempfile.gettempdir()) / f"tuneparts-bench-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return folder / "mlflow.db"
