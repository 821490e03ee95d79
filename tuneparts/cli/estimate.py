"""What a search will cost, from a few passes of each arm on this machine."""

import itertools
import os
import time
from typing import Any

from rich.console import Console

from tuneparts.search import algorithms
from tuneparts.search.spec import Arm, Asha


def cpus() -> int:
    """Processors of this machine."""
    return os.cpu_count() or 1


def passes_of(arm: Arm) -> int:
    """Passes of one replicate; for successive halving, when just one in so many goes on."""
    algorithm, passes = arm.algorithm, arm.config.passes
    if not isinstance(algorithm, Asha):
        return arm.trials_per_seed * passes
    levels = [0, *algorithms.rungs(algorithm.min_passes, algorithm.reduction, passes)]
    alive, spent = float(algorithm.num_trials), 0.0
    for start, end in itertools.pairwise(levels):
        spent += alive * (end - start)
        alive = max(1.0, alive / algorithm.reduction)
    return round(spent)


def seconds_per_arm(search: Any, console: Console) -> dict[str, float]:
    """Seconds of one pass of each arm, evaluation included in proportion."""
    import torch

    from tuneparts.training.learner import Context, available_device

    torch.set_num_threads(1)
    with console.status("measuring a few passes of each arm"):
        context = Context(task=search.data.load(), seed=0, device=available_device())
        return {arm.name: _seconds_per_pass(arm, context) for arm in search.arms}


def _seconds_per_pass(arm: Arm, context: Any) -> float:
    """Two short intervals and one longer one separate training from evaluation."""
    config = arm.config
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
