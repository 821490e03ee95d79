"""How many trials can run side by side, for algorithms that propose as many at once.

What they propose depends on it, so it is settled when a run begins, and the run's search keeps it.
"""

import math

import torch

from tuneparts.core.cpus import usable_cpus
from tuneparts.executors.choice import Place
from tuneparts.executors.placement import bundles, slots
from tuneparts.search.algorithms import Sampled
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Search

_PLENTY = 1e15
"""Bytes of memory, which is not what limits how many trials an algorithm proposes."""


def fitted(search: Search, place: Place) -> Search:
    """A search whose algorithms know how many of their trials run side by side at a place.

    Each replicate of an arm gets its share of the room; a cluster is asked what it has. A search
    that says so itself, or whose algorithms do not ask, is returned as it is.
    """
    own = {arm.name: arm.algorithm for arm in search.arms}
    asking = {n: it for n, it in own.items() if isinstance(it, Sampled) and it.window is None}
    if not asking:
        return search
    devices = torch.cuda.device_count()
    machine = {
        "CPU": float(usable_cpus() if place.cpus is None else place.cpus),
        "GPU": float(min(devices, 1) if place.executor(search) == "local" else devices),
        "memory": _PLENTY,
    }
    nodes = [machine]
    if place.address is not None:
        from tuneparts.executors.ray import cluster

        nodes = [{**node, "memory": _PLENTY} for node in cluster.nodes_at(place.address)]
    arms = []
    for arm in search.arms:
        if arm.name in asking:
            most = _most(search, arm, place.cpus)
            room = place.workers or slots(bundles(arm), nodes, most=most)
            width = math.ceil(min(room, most) / len(search.seeds_of(arm)))
            fitting = asking[arm.name].for_width(max(1, width))
            arm = arm.model_copy(update={"algorithm": fitting})  # noqa: PLW2901
        arms.append(arm)
    return search.model_copy(update={"arms": tuple(arms)})


def _most(search: Search, arm: Arm, cpus: float | None) -> int:
    """The limits that do not depend on the machine."""
    trials = arm.trials_per_seed * len(search.seeds_of(arm))
    fill = None if cpus is None else int(cpus / arm.resources.cpus)
    return min(limit for limit in (trials, search.at_once, arm.at_once, fill) if limit is not None)
