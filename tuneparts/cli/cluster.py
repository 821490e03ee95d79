"""`tuneparts cluster status`: what a cluster has, and what a search would make of it."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console

from tuneparts.cli.output import Form, records, terminal, write
from tuneparts.executors.placement import GIB, Amounts, bundles, describe, refuse_unplaceable, slots
from tuneparts.reports.progress import clock
from tuneparts.reports.rendering import Table, show

_PLAIN = {"CPU", "GPU", "memory", "object_store_memory"}


def status(name: str | None, *, address: str | None, scale: str, form: Form = Form.TABLE) -> None:
    """Print nodes and resources; with a search, how it would be placed and how long it would run.

    Args:
        name: a search; None for the nodes alone.
        address: HOST:PORT of a cluster; this machine when not given.
        scale: at which the search would run.
        form: for people or for programs.
    """
    from tuneparts.executors.ray import cluster
    from tuneparts.search import load

    console = terminal(form)
    search = None if name is None else load.load(name, scale=scale)
    cluster.prepare(address)
    import ray

    logging.getLogger("ray").handlers = [logging.NullHandler()]  # the table is the answer
    with ExitStack() as around:
        with console.status("joining the cluster"):
            around.enter_context(cluster.joined(address))
        table = node_table(ray.nodes())
        free: Mapping[str, float] = ray.available_resources()
        nodes = list(cluster.nodes().values())
    if form is Form.TABLE:
        show(console, table)
        console.print(
            f"free now: {free.get('CPU', 0):g} CPU, {free.get('GPU', 0):g} GPU, "
            f"{free.get('memory', 0) / GIB:.1f} GB",
            highlight=False,
        )
    if search is None:
        if form is not Form.TABLE:
            write(form, "nodes", records(table), free=dict(free))
        return
    use, seconds = _use(search, nodes, console)
    if form is not Form.TABLE:
        write(form, "arms", records(use), nodes=records(table), seconds=seconds)
        return
    show(console, use)
    console.print(
        f"about {clock(seconds)} on an idle cluster, from a few passes of each arm on one CPU of "
        "this machine; a GPU is faster by a factor that this cannot know",
        highlight=False,
    )


def node_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """One line per node that ever joined."""
    rows = []
    for node in found:
        has: Mapping[str, float] = node["Resources"]
        custom = {k: v for k, v in has.items() if k not in _PLAIN and not k.startswith("node:")}
        rows.append(
            [
                node.get("NodeManagerHostname", ""),
                node["NodeManagerAddress"],
                "alive" if node["Alive"] else "dead",
                f"{has.get('CPU', 0):g}",
                f"{has.get('GPU', 0):g}",
                f"{has.get('memory', 0) / GIB:.1f} GB",
                describe(custom),
            ]
        )
    headers = ["node", "address", "state", "CPUs", "GPUs", "memory", "custom"]
    return Table.of_rows(headers, rows, numbers=["CPUs", "GPUs", "memory"], prose=["custom"])


def wall_seconds(
    work: Mapping[str, float], longest: Mapping[str, float], at_once: Mapping[str, int]
) -> float:
    """How long a search runs when its arms share the slots: never less than its longest trial.

    Args:
        work: seconds of all trials of each arm, one after the other.
        longest: seconds of one trial of each arm.
        at_once: trials of each arm that the cluster holds.
    """
    shared = sum(seconds / max(1, at_once[arm]) for arm, seconds in work.items())
    return max([shared, *longest.values()], default=0.0)


def _use(search: Any, nodes: Sequence[Amounts], console: Console) -> tuple[Table, float]:
    """What each arm takes of a cluster, and the seconds of the whole search."""
    from tuneparts.cli import estimate

    needs = {arm.name: bundles(arm) for arm in search.arms}
    refuse_unplaceable(needs, nodes)
    per_pass = estimate.seconds_per_arm(search, console)
    spared = estimate.spared_passes(search)
    rows = []
    work: dict[str, float] = {}
    longest: dict[str, float] = {}
    at_once: dict[str, int] = {}
    for arm in search.arms:
        seeds = len(search.seeds_of(arm))
        trials = arm.trials_per_seed * seeds
        made = arm.algorithm.expected_passes(arm) * seeds - spared[arm.name]
        work[arm.name] = per_pass[arm.name] * made
        longest[arm.name] = per_pass[arm.name] * arm.config.passes
        at_once[arm.name] = min(slots(needs[arm.name], nodes), trials)
        takes = " + ".join(describe(need) for need in needs[arm.name])
        rows.append([arm.name, takes, trials, at_once[arm.name], clock(work[arm.name])])
    headers = ["arm", "a trial takes", "trials", "at once", "one after the other"]
    table = Table.of_rows(headers, rows, numbers=headers[2:], prose=["a trial takes"])
    return table, wall_seconds(work, longest, at_once)
