"""Bench of a start: seconds from the command to the first training step of a small search.

A new process each time: `tuneparts search` without Ray and with it, beside a script that trains
the same kind of net in stock Ray Tune. Our modules are compiled before, as an installer does.
"""

import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuneparts
from tuneparts.bench import machine
from tuneparts.journal import Row, read

STOCK = """
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


def compare(
    rounds: int, *, tell: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Start each way in turn, so many times.

    Args:
        rounds: how often.
        tell: is called with each start, as it comes.
    """
    compileall.compile_dir(Path(tuneparts.__file__).parent, quiet=2)

    def timed(name: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            seconds = WAYS[name](Path(folder))
        tell({"way": name, "start to first step s": seconds})
        return seconds

    found = machine.interleave(
        {name: lambda name=name: timed(name) for name in WAYS},  # type: ignore[misc]
        rounds=rounds,
    )
    rows: list[dict[str, Any]] = []
    for name, seconds in found.items():
        spread = {f"start to first step s, {k}": v for k, v in machine.spread(seconds).items()}
        rows.append({"way": name, **spread})
    medians = {row["way"]: row["start to first step s, median"] for row in rows}
    ratio = medians["ray_cold"] / medians["ours_cold_on_ray"]
    return rows, {"ray_cold_over_ours_on_ray": ratio}


def _local(folder: Path) -> float:
    return _ours(folder, "--local")


def _on_ray(folder: Path) -> float:
    return _ours(folder, "--ray")


def _ours(folder: Path, where: str) -> float:
    places = {
        "TUNEPARTS_RESULTS": str(folder),
        "TUNEPARTS_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
    }
    command = [sys.executable, "-m", "tuneparts.cli.main", "search", "rotated_digits", where]
    start = time.time()
    subprocess.run(
        [*command, "--scale", "smoke", "--arms", "none", "--seeds", "0"],
        env={**os.environ, **places}, check=True, capture_output=True,
    )  # fmt: skip
    (journal,) = folder.glob("rotated_digits/*/journal.jsonl")
    first = next(event for event in read(journal) if isinstance(event, Row))
    return first.time - first.metrics["cost/seconds"] - start


def _stock(folder: Path) -> float:
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", STOCK, str(folder)], check=True, capture_output=True, text=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("begun ")]
    return float(line.split()[1]) - start


WAYS: dict[str, Callable[[Path], float]] = {
    "ours_cold": _local,
    "ours_cold_on_ray": _on_ray,
    "ray_cold": _stock,
}
