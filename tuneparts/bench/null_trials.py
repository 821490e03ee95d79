"""Bench of trials that do nothing: what each costs here, in stock Ray Tune and in Optuna.

Like is compared with like: without MLflow on both sides, we with a journal and checkpoints, Ray
with its files of results. Optuna does without files and processes. What MLflow adds is a row of its
own; `bench tracking` sets that beside Ray's callback.

Two costs are told apart: of one trial more, from the end of the first to the end of the last, and
of all trials with the start of workers and the end, divided by their number.
"""

import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

from tuneparts.bench import machine
from tuneparts.testing.null import NullConfig
from tuneparts.journal import Event, TrialEnded

SETTLE = 2.0
"""Seconds between two ways: Ray's workers of the last one are still ending after it returns."""


class Clock:
    """When trials ended."""

    def __init__(self) -> None:
        self._ends: list[float] = []

    def tick(self) -> None:
        """Say that a trial has ended."""
        self._ends.append(time.perf_counter())

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, TrialEnded):
            self.tick()

    def mean(self) -> float:
        """Seconds from one trial's end to the next, without the start and the end of it all."""
        return (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)


Way: TypeAlias = Callable[[int, Path, Clock], None]


def compare(
    trials: int, rounds: int, *, tell: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run each way on the Ray that this process has joined, interleaved round by round.

    Args:
        trials: of each way.
        rounds: how often.
        tell: is called with what each round took, as it comes.
    """
    from tuneparts.tracking import store

    store.prepare(f"sqlite:///{_store()}")
    found = machine.interleave(
        {name: lambda name=name: _timed(name, trials, tell) for name in WAYS},  # type: ignore[misc]
        rounds=rounds,
    )
    rows: list[dict[str, Any]] = []
    for name, times in found.items():
        whole, between = zip(*times, strict=True)
        rows.append(
            {
                "way": name,
                "trials": trials,
                "ms per trial": 1000 * machine.spread(between)["median"],
                **{
                    f"ms per trial with start, {key}": 1000 * value
                    for key, value in machine.spread(whole).items()
                },
            }
        )
    of = {row["way"]: row for row in rows}

    def over(way: str, column: str) -> float:
        return float(of[way][column] / of["ours"][column])

    with_start = "ms per trial with start, median"
    return rows, {
        "ray_reused_over_ours": over("ray_reused", "ms per trial"),
        "ray_reused_over_ours_with_start": over("ray_reused", with_start),
        "ours_mlflow_over_ours_with_start": over("ours_mlflow", with_start),
        "optuna_over_ours_with_start": over("optuna", with_start),
    }


def _timed(name: str, trials: int, tell: Callable[[dict[str, Any]], None]) -> tuple[float, float]:
    """Seconds per trial, with the start and without it."""
    time.sleep(SETTLE)
    with tempfile.TemporaryDirectory() as folder:
        clock, start = Clock(), time.perf_counter()
        WAYS[name](trials, Path(folder), clock)
        whole = (time.perf_counter() - start) / trials
    each = 1000 * clock.mean()
    tell({"way": name, "ms per trial": each, "ms per trial with start": 1000 * whole})
    return whole, clock.mean()


def _ours(trials: int, folder: Path, clock: Clock) -> None:
    from tuneparts.executors import execute

    execute(_search(trials), folder=folder, observers=[clock])


def _ours_mlflow(trials: int, folder: Path, clock: Clock) -> None:
    """As in `tuneparts search`."""
    from tuneparts.executors import execute
    from tuneparts.tracking.tracker import SearchCard, Tracker

    search = _search(trials)
    card = SearchCard(name="bench", scale="smoke", digest=search.digest, commit="", resolved="{}")
    tracker = Tracker(f"sqlite:///{_store()}", folder=folder, search=card)
    execute(search, folder=folder, observers=[tracker, clock])
    tracker.close()


def _search(trials: int) -> Any:
    from tuneparts.data.config import DataConfig
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Arm, RandomSearch, Scale, Search

    arm = Arm(
        name="null",
        config=NullConfig(),
        algorithm=RandomSearch(num_trials=trials),
        space={"x": Uniform(low=0.0, high=1.0)},
    )
    return Search(
        name="bench",
        question="What does a trial cost?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=10, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=1,
        seeds=(0,),
        arms=(arm,),
    )


def _ray_reused(trials: int, folder: Path, clock: Clock) -> None:
    """A function trainable with Ray's defaults and actors that are used again."""
    from ray import tune

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, **_: Any) -> None:
            clock.tick()

    tuner = tune.Tuner(
        _objective,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True),
        run_config=tune.RunConfig(
            name="stock", storage_path=str(folder), verbose=0, callbacks=[Listener()]
        ),
    )
    with quiet():
        tuner.fit()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what Tune prints and warns of from standing between rows."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _objective(config: dict[str, float]) -> dict[str, float]:
    return {"score": 1 - (config["x"] - 0.7) ** 2}


def _optuna(trials: int, folder: Path, clock: Clock) -> None:  # noqa: ARG001
    """The defaults: TPE, in memory, one process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    study.optimize(
        lambda t: _objective({"x": t.suggest_float("x", 0, 1)})["score"],
        trials,
        callbacks=[lambda *_: clock.tick()],
    )


WAYS: dict[str, Way] = {
    "ours": _ours,
    "ray_reused": _ray_reused,
    "ours_mlflow": _ours_mlflow,
    "optuna": _optuna,
}


def _store() -> Path:
    """One SQLite store for all rounds: making one takes seconds and is not a cost per trial."""
    folder = Path(tempfile.gettempdir()) / f"tuneparts-bench-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return folder / "mlflow.db"
