"""What a search will cost, from a few steps of each arm on this machine."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from tuneparts.cli._output import Form, write
from tuneparts.core.errors import DataMissingError
from tuneparts.core.glossary import STEP_IN_SHORT
from tuneparts.core.provenance import usable_cpus
from tuneparts.core.seeding import numpy_generator
from tuneparts.results.rendering import Table, show
from tuneparts.search.spec import Search


def seconds_per_arm(search: Search, console: Console) -> dict[str, float]:
    """CPU (or GPU) seconds of one step of each arm, evaluation included in proportion."""
    import torch

    from tuneparts.training.learner import Context, available_device
    from tuneparts.training.pack import Pack

    torch.set_num_threads(1)
    found, short, long = {}, 2, 6
    with console.status("measuring a few steps of each arm"):
        task = search.load_data()
        for arm in search.arms:
            device = available_device(arm.resources.gpus)
            clock = time.process_time if device.type == "cpu" else time.perf_counter
            values = arm.sample(numpy_generator(0, "measure"))  # the config may lack what they give
            config, _ = arm.config_at(values).measurable()
            times = []
            for length in (short, short, long):  # the first one warms up
                budget = {"interval": length, "steps": max(length * 100, config.steps)}
                context = Context(task=task, seed=0, device=device)
                learner: Any = config.replaced(budget).build(context)
                trained = Pack({0: learner}, arm.packed) if arm.packed > 1 else learner
                start = clock()
                trained.advance()
                times.append(clock() - start)
            per_pass = max((times[2] - times[1]) / (long - short), 0.0)
            evaluation = max(times[1] - short * per_pass, 0.0) / config.interval
            found[arm.name] = per_pass / min(arm.packed, arm.trials_per_seed) + evaluation
    return found


def print_plan(search: Search, console: Console, form: Form = Form.TABLE) -> None:
    """Trials, steps and resources of each arm, and the time where the data is there."""
    try:
        costs, why_not = seconds_per_arm(search, console), ""
    except DataMissingError as error:
        costs, why_not = None, str(error)
    rows = plan_rows(search, costs)
    if form is not Form.TABLE:
        write(form, "arms", rows, search=search.name, scale=search.scale, digest=search.digest)
        return
    console.print(f"digest {search.digest}, selection by {search.metric}")
    cells = []
    for row in rows:
        needs = f"{row['cpus']:g} CPU" + (f", {row['gpus']:g} GPU" if row["gpus"] else "")
        counts = [row["trials"], f"{row['steps']:,}", f"{row['at most']:,}"]
        names = [row["arm"], row["method"], row["algorithm"], ",".join(map(str, row["seeds"]))]
        cells.append([*names, *counts, needs, f"{row.get('hours', 0):.3f}"])
    headers = ["arm", "method", "algorithm", "seeds", "trials", "steps", "at most", "needs"]
    headers += ["hours (1 CPU)"] if costs else []
    notes = [
        "Steps of all trials, as expected and at most where trials are stopped early; "
        f"{STEP_IN_SHORT}."
    ]
    notes += [] if search.stop is None else ["Rules of `stop` may end it before."]
    numbers = ["trials", "steps", "at most", "hours (1 CPU)"]
    show(console, Table.of_rows(headers, cells, numbers=numbers, notes=notes))
    if costs is None:
        console.print(f"no time is given: {why_not}")
        return
    spared = spared_steps(search)
    total = sum(row["hours"] * 60 for row in rows)
    most = sum(costs[r["arm"]] * (r["at most"] - spared[r["arm"]]) / 60 for r in rows)
    console.print(
        f"about {total:,.1f} minutes on one CPU, {total / usable_cpus():,.1f} on this machine, "
        f"from a few steps of each arm; at that speed at most {most:,.1f} and "
        f"{most / usable_cpus():,.1f}"
    )


def spared_steps(search: Search) -> dict[str, int]:
    """Steps of each arm's trials that another trial of the seed makes for them."""
    found, begun = {}, set()
    for arm in search.arms:
        _, shared = arm.config.measurable()
        own = 0 if (type(arm.config), shared) in begun else 1
        begun.add((type(arm.config), shared))
        found[arm.name] = shared * (arm.trials_per_seed - own) * len(search.seeds_of(arm))
    return found


def plan_rows(search: Search, costs: Mapping[str, float] | None) -> list[dict[str, Any]]:
    """What each arm will take in all its trials; hours where the seconds of a step are given."""
    rows: list[dict[str, Any]] = []
    spared = spared_steps(search)
    for arm in search.arms:
        seeds = search.seeds_of(arm)
        steps = len(seeds) * arm.cost.expected
        row = {
            "arm": arm.name,
            "method": arm.config.model_dump()["method"],
            "algorithm": arm.algorithm.kind + (f" after {arm.source}" if arm.source else ""),
            "seeds": list(seeds),
            "trials": arm.trials_per_seed * len(seeds),
            "steps": steps,
            "at most": len(seeds) * arm.cost.most,
            "cpus": arm.resources.cpus,
            "gpus": arm.resources.gpus,
        }
        if costs is not None:
            row["hours"] = costs[arm.name] * (steps - spared[arm.name]) / 3600
        rows.append(row)
    return rows
