"""What a search will cost, from a few passes of each arm on this machine."""

import time
from typing import Any

from rich.console import Console

from tuneparts.cpus import usable_cpus
from tuneparts.glossary import PASS_IN_SHORT
from tuneparts.reports.rendering import Table, show
from tuneparts.search import draws
from tuneparts.search.spec import Arm
from tuneparts.seeding import numpy_generator


def seconds_per_arm(search: Any, console: Console) -> dict[str, float]:
    """Seconds of one pass of each arm, evaluation included in proportion."""
    import torch

    from tuneparts.training.learner import Context, available_device

    torch.set_num_threads(1)
    with console.status("measuring a few passes of each arm"):
        task = search.load_data()
        devices = {arm.name: available_device(arm.resources.gpus) for arm in search.arms}
        return {
            arm.name: _seconds_per_pass(arm, Context(task=task, seed=0, device=devices[arm.name]))
            for arm in search.arms
        }


def _seconds_per_pass(arm: Arm, context: Any) -> float:
    """Two short intervals and one longer one separate training from evaluation."""
    # A draw, for the config may lack what the space gives.
    values = draws.sample(arm, numpy_generator(0, "measure"))
    config = arm.config.replaced(arm.of_config(values))
    short, long = 2, 6
    times = []
    for length in (short, short, long):  # the first one warms up
        budget = {"interval": length, "passes": max(length * 100, config.passes)}
        learner = config.replaced(budget).build(context)
        start = time.perf_counter()
        learner.advance()
        times.append(time.perf_counter() - start)
    per_pass = max((times[2] - times[1]) / (long - short), 0.0)
    evaluation = max(times[1] - short * per_pass, 0.0)
    return per_pass + evaluation / config.interval


def print_plan(search: Any) -> None:
    """Trials, passes, resources and estimated time of each arm."""
    console = Console()
    costs = seconds_per_arm(search, console)
    rows, total, most_total = [], 0.0, 0.0
    for arm in search.arms:
        seeds = search.seeds_of(arm)
        trials = arm.trials_per_seed * len(seeds)
        passes = arm.algorithm.expected_passes(arm) * len(seeds)
        most = arm.algorithm.most_passes(arm) * len(seeds)
        total += costs[arm.name] * passes
        most_total += costs[arm.name] * most
        needs = f"{arm.resources.cpus:g} CPU"
        if arm.resources.gpus:
            needs += f", {arm.resources.gpus:g} GPU"
        rows.append(
            [
                arm.name,
                arm.config.model_dump()["method"],
                arm.algorithm.kind + (f" after {arm.follows}" if arm.follows else ""),
                ",".join(map(str, seeds)),
                trials,
                f"{passes:,}",
                f"{most:,}",
                needs,
                f"{costs[arm.name] * passes / 3600:.3f}",
            ]
        )
    console.print(f"{search.question}\nsearch {search.name} at scale {search.scale}")
    console.print(f"digest {search.digest}, selection by {search.metric}", highlight=False)
    numbers = ["trials", "passes", "at most", "hours (1 CPU)"]
    headers = ["arm", "method", "algorithm", "seeds", *numbers[:3], "needs", numbers[3]]
    notes = [
        f"Passes of all trials, as expected and at most; {PASS_IN_SHORT}. They differ where an "
        "algorithm stops trials by their scores."
    ]
    show(console, Table.of_rows(headers, rows, numbers=numbers, notes=notes))
    console.print(
        f"about {total / 60:.1f} minutes on one CPU, {total / 60 / usable_cpus():.1f} on this "
        f"machine, from a few passes of each arm; at most {most_total / total:.2g} times as long, "
        "where fewer trials are stopped early than expected",
        highlight=False,
    )
