"""A search without training: its trials, its barriers and its start, compared with stock Ray.

Trials do nothing, and like is compared with like: without MLflow on both sides, we with a journal
and checkpoints, Ray with its files of results; Optuna does without files and processes. What MLflow
adds is a row of its own. Two costs are separate: of one trial more, from the end of the first to
the end of the last, and of all trials with the start of workers and the end.

Barriers are those of ASHA and successive halving, timed as in `benchmarks.timing`. A start is the
seconds from the command to the first training step, in a new process each time.
"""

import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import tuneparts
import tuneparts as tp
from benchmarks import sleeping
from benchmarks.measure import Clock, interleave, spread
from benchmarks.results import Result, Row, result, tell
from benchmarks.timing import Case, joined_ray, measured, run_tuner, stock_over_ours
from tuneparts.core.provenance import usable_cpus
from tuneparts.executors import Place, execute
from tuneparts.search.card import RunCard
from tuneparts.search.events import Row as Interval
from tuneparts.search.events import TrialEnded, read
from tuneparts.testing.null import NullConfig
from tuneparts.tracking import store
from tuneparts.tracking.card import SearchCard
from tuneparts.tracking.tracker import Tracker

Found: TypeAlias = tuple[dict[str, float], list[Row]]
_Way: TypeAlias = Callable[[int, Path, Clock], None]
_SETTLE = 2.0
"""Seconds between two ways: Ray's workers of the last one are still ending after it returns."""
_BARRIER = Case(slots=8, trials=64, unit=0.25, draws=3, law="uniform")
"""Intervals of 0.08 to 0.8 seconds."""
_QUICK_BARRIER = Case(slots=2, trials=8, unit=0.06, law="uniform")
_STOCK_START = """
import sys, time
import ray
from ray import tune

def train(config):
    import torch
    net = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(net.parameters(), lr=config["lr"])
    tune.report({"begun": time.time()})
    net(torch.zeros(1, 64)).sum().backward()
    optimiser.step()

ray.init(include_dashboard=False, log_to_driver=False)
tuner = tune.Tuner(
    train,
    param_space={"lr": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(num_samples=1),
    run_config=tune.RunConfig(storage_path=sys.argv[1], name="stock", verbose=0),
)
print("begun", tuner.fit()[0].metrics["begun"])
"""
_OPTUNA_FUNCTION = """
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(lambda trial: (trial.suggest_float("x", -1, 1) - 0.3) ** 2, n_trials=100)
"""
_OUR_FUNCTION = """
import tempfile
from pathlib import Path
import tuneparts as tp
from tuneparts.executors import Place, execute

def quadratic(config):
    return (config["x"] - 0.3) ** 2

if __name__ == "__main__":
    config = tp.Objective(function=quadratic, reports={"val/loss": "min"})
    arm = config.searched_by(tp.RandomSearch(100), x=tp.Uniform(-1, 1))
    search = tp.Search(seeds=1, arms={"random": arm})
    execute(search, folder=Path(tempfile.mkdtemp()), place=Place("local", workers=1))
"""


def run(*, quick: bool) -> Result:
    """Seconds per trial of each way, adaptive searches with their barriers, and a cold start."""
    parts = (
        _trials(*((6, 1) if quick else (100, 3))),
        _barriers(_QUICK_BARRIER if quick else _BARRIER),
        _starts(1 if quick else 2),
        _functions(1 if quick else 5),
    )
    ratios = {name: ratio for found, _ in parts for name, ratio in found.items()}
    return result("search", ratios, [row for _, rows in parts for row in rows])


def _trials(trials: int, rounds: int) -> Found:
    with tempfile.TemporaryDirectory() as folder, joined_ray(usable_cpus()):
        uri = f"sqlite:///{folder}/mlflow.db"  # one for all: making it is not a cost per trial
        store.client(uri)
        ways: dict[str, _Way] = {"optuna": _optuna, "ray_reused": _ray}
        ways["ours_mlflow"] = partial(_ours, uri=uri)
        timed = {name: partial(_timed, way, trials) for name, way in ways.items()}
        timed["ours"] = partial(_timed, _ours, trials)
        seconds = interleave(timed, rounds=rounds)
    rows: dict[str, Row] = {}
    for name, found in seconds.items():
        whole, between = zip(*found, strict=True)
        row = {"way": name, "trials": trials, "ms per trial": 1000 * median(between)}
        start = {f"ms per trial with start, {k}": 1000 * v for k, v in spread(whole).items()}
        rows[name] = row | start
        tell(rows[name])

    def over(way: str, column: str) -> float:
        return float(rows[way][column] / rows["ours"][column])

    with_start = "ms per trial with start, median"
    ratios = {f"{way}_over_ours_with_start": over(way, with_start) for way in ways}
    return ratios | {"ray_reused_over_ours": over("ray_reused", "ms per trial")}, [*rows.values()]


def _timed(way: _Way, trials: int) -> tuple[float, float]:
    """Seconds per trial with the start of it all, and from the end of one trial to the next."""
    time.sleep(_SETTLE)
    with tempfile.TemporaryDirectory() as folder:
        clock, start = Clock(TrialEnded), time.perf_counter()
        way(trials, Path(folder), clock)
        whole = time.perf_counter() - start
    return whole / trials, (clock.ticks[-1] - clock.ticks[0]) / max(1, trials - 1)


def _ours(trials: int, folder: Path, clock: Clock, *, uri: str | None = None) -> None:
    """As in `tuneparts search`, with MLflow where there is a store."""
    search = sleeping.search("null", tp.RandomSearch(num_trials=trials), NullConfig())
    card = SearchCard(RunCard("bench", scale="smoke", digest=search.digest))
    tracker = None if uri is None else Tracker(uri, folder=folder, search=card)
    execute(
        search,
        folder=folder,
        place=Place("ray"),
        observers=[clock] if tracker is None else [tracker, clock],
    )
    if tracker is not None:
        tracker.close()


def _ray(trials: int, folder: Path, clock: Clock) -> None:
    """A function trainable with Ray's defaults."""
    from ray import tune

    options = {"space": {"x": tune.uniform(0, 1)}, "num_samples": trials}
    run_tuner(_objective, folder / "stock", on_result=clock.tick, **options)


def _optuna(trials: int, folder: Path, clock: Clock) -> None:  # noqa: ARG001
    """The defaults: TPE, in memory, one process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(direction="maximize").optimize(
        lambda trial: _objective({"x": trial.suggest_float("x", 0, 1)})["score"],
        trials,
        callbacks=[clock.tick],
    )


def _objective(config: Mapping[str, float]) -> dict[str, float]:
    return {"score": 1 - (config["x"] - 0.7) ** 2}


def _barriers(case: Case) -> Found:
    rows = measured(case, [("asha", "exact"), ("halving", "exact")])
    over = partial(stock_over_ours, rows, "asha")
    asha, halving = over("ours, asha, exact"), over("ours, halving, exact")
    return {"ray_asha_over_ours": asha, "ray_asha_over_our_halving": halving}, rows


def _starts(rounds: int) -> Found:
    compileall.compile_dir(Path(tuneparts.__file__).parent, quiet=2)  # as an installer does
    ways: dict[str, Callable[[], float]] = {
        "ray_cold": _stock_start,
        "ours_cold_on_ray": partial(_our_start, "--ray"),
        "ours_cold": partial(_our_start, "--local"),
    }
    rows: list[Row] = []
    for name, found in interleave(ways, rounds=rounds).items():
        columns = {f"start to first step s, {k}": v for k, v in spread(found).items()}
        rows.append({"way": name, **columns})
        tell(rows[-1])
    stock, on_ray, _ = (row["start to first step s, median"] for row in rows)
    return {"ray_cold_over_ours_on_ray": stock / on_ray}, rows


def _functions(rounds: int) -> Found:
    """CPU seconds of a new process that draws a function of one number 100 times."""
    ways = {"optuna_function": _OPTUNA_FUNCTION, "our_function": _OUR_FUNCTION}
    with tempfile.TemporaryDirectory() as folder:

        def spent(name: str) -> float:
            script = Path(folder, f"{name}.py")
            script.write_text(ways[name])
            before = os.times()
            subprocess.run([sys.executable, script], check=True, capture_output=True)
            after = os.times()
            return sum(after[2:4]) - sum(before[2:4])

        found = interleave({name: partial(spent, name) for name in ways}, rounds=rounds)
    rows: list[Row] = []
    for name, seconds in found.items():
        rows.append({"way": name, **{f"CPU s, {k}": v for k, v in spread(seconds).items()}})
        tell(rows[-1])
    theirs, ours = (row["CPU s, median"] for row in rows)
    return {"our_function_over_optuna": ours / theirs}, rows


def _our_start(where: str) -> float:
    words = ["rotated_digits", where, "--scale", "smoke", "--arms", "none", "--seeds", "0"]
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        places = {"TUNEPARTS_RESULTS": folder, "TUNEPARTS_TRACKING_URI": uri}
        start = time.time()
        command = [sys.executable, "-m", "tuneparts", "search", *words]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **places})
        (journal,) = Path(folder).glob("rotated_digits/*/journal.jsonl")
        first = next(event for event in read(journal) if isinstance(event, Interval))
    return first.time - first.metrics["cost/seconds"] - start


def _stock_start() -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        command = [sys.executable, "-c", _STOCK_START, folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("begun ")]
    return float(line.split()[1]) - start
