"""Where trials run: which executor suits a search, what a trial reserves, and how many fit.

Amounts are in Ray's units, but nothing here needs Ray.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tuneparts.core.errors import ConfigError, PlacementError
from tuneparts.core.provenance import usable_cpus
from tuneparts.executors._watchdog import IN_WORKER
from tuneparts.search.algorithms.sampler import Sampled
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Search

Executor = Literal["local", "ray"]
MOST_LOCAL_TRIALS = 200
"""Trials up to which this machine's own processes are taken."""


def _num_trials(search: Search) -> int:
    return sum(arm.trials_per_seed * len(search.seeds_of(arm)) for arm in search.arms)


def _suited(search: Search) -> Executor:
    """Choose the local executor for small searches, and Ray for large ones or what only Ray has."""
    needs_ray = any(
        arm.resources.gpus or arm.resources.custom or arm.config.task_bundles()
        for arm in search.arms
    )
    return "ray" if needs_ray or _num_trials(search) > MOST_LOCAL_TRIALS else "local"


@dataclass(frozen=True)
class Place:
    """Where trials run."""

    executor: Executor | None = None
    """`local` for processes of this machine, `ray` for Ray; None for what suits the search."""
    address: str | None = None
    """HOST:PORT of a Ray cluster, which implies Ray; None for this machine."""
    cpus: float | None = None
    """CPUs that they may fill; None for all."""
    workers: int | None = None
    """Processes of the local executor, 1 for this one; None for as many as there is room for."""

    def __post_init__(self) -> None:
        if IN_WORKER in os.environ:
            raise ConfigError(
                "a worker imported a script that starts a search. Write "
                "`if __name__ == '__main__':` before the lines that start it."
            )
        if self.address is not None and self.executor == "local":
            raise ConfigError(f"address = {self.address}: the local executor joins no cluster.")
        if self.address is not None:
            object.__setattr__(self, "executor", "ray")
        if self.workers is not None and self.executor == "ray":
            raise ConfigError(
                f"workers = {self.workers}: Ray places as many trials as its nodes hold. Use "
                "`cpus=` to fill fewer CPUs, or leave Ray out."
            )
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers = {self.workers}: must be positive.")
        if self.cpus is not None and not self.cpus > 0:
            raise ConfigError(f"cpus = {self.cpus:g}: must be positive.")

    def settled(self, search: Search) -> "Place":
        """The same place, whose executor no longer depends on the search."""
        return replace(self, executor=self.executor or _suited(search))


GIB = 1024**3
Amounts: TypeAlias = Mapping[str, float]
"""Resource name -> amount, in Ray's units: memory in bytes."""
_STEP = 10_000
"""Ray counts every resource in steps of 1/10,000; so a third of a GPU fits three times."""


def bundle(resources: Resources) -> dict[str, float]:
    """Translate resources to what Ray calls a bundle: resource name -> amount."""
    amounts = {"CPU": resources.cpus, **resources.custom}
    if resources.gpus:
        amounts["GPU"] = resources.gpus
    if resources.memory_gb:
        amounts["memory"] = resources.memory_gb * GIB
    return amounts


def bundles(arm: Arm) -> list[dict[str, float]]:
    """List what a trial of an arm reserves: its own bundle, then those of its tasks."""
    return [bundle(arm.resources), *arm.config.task_bundles()]


def slots(trial: Sequence[Amounts], nodes: Sequence[Amounts], *, most: int = 100_000) -> int:
    """Count the trials that fit at once, each bundle placed on the first node with room for it."""
    needs = [_steps(need) for need in trial]
    free = [_steps(node) for node in nodes]
    placed = 0
    while placed < most and all(_reserve(need, free) for need in needs):
        placed += 1
    return placed


def refuse_unplaceable(needs: Mapping[str, Sequence[Amounts]], nodes: Sequence[Amounts]) -> None:
    """Raise for an arm whose trials, given by their bundles, these nodes could never hold."""
    for arm, trial in needs.items():
        for need in trial:
            if not slots([need], nodes, most=1):
                _refuse(arm, need, nodes)
        if not slots(trial, nodes, most=1):
            total = {name: sum(n.get(name, 0.0) for n in trial) for n in trial for name in n}
            all_nodes = {name: sum(node.get(name, 0.0) for node in nodes) for name in total}
            raise PlacementError(
                f"`{arm}`: the {len(trial)} bundles of its trial need {_text(total)} together, and "
                f"the cluster has {_text(all_nodes)}. Add nodes, or lower what its tasks ask for."
            )


def describe(amounts: Amounts) -> str:
    """Write amounts as a person would: `2 CPU, 0.5 GPU, 4 GB`."""
    return ", ".join(
        f"{amount / GIB:g} GB" if name == "memory" else f"{amount:g} {name}"
        for name, amount in amounts.items()
    )


def _refuse(arm: str, need: Amounts, nodes: Sequence[Amounts]) -> None:
    most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in need}
    missing = [name for name, amount in need.items() if amount > most[name]]
    together = "" if missing else ", though no node has them all together"
    names = missing or list(need)
    raise PlacementError(
        f"`{arm}` needs {_text({n: need[n] for n in names})} and the cluster has "
        f"{_text({n: most[n] for n in names})} on a node{together}. Add a larger node, or lower "
        "the arm's resources."
    )


def _steps(amounts: Amounts) -> dict[str, int]:
    return {name: round(amount * _STEP) for name, amount in amounts.items()}


def _reserve(need: Mapping[str, int], free: Sequence[dict[str, int]]) -> bool:
    """Reserve a bundle on the first node with room for it; returns whether there was one."""
    if not any(need.values()):
        return False  # what needs nothing is not a trial, and would fit without end
    for node in free:
        if all(node.get(name, 0) >= amount for name, amount in need.items()):
            for name, amount in need.items():
                if amount:
                    node[name] -= amount
            return True
    return False


def _text(amounts: Amounts) -> str:
    return ", ".join(
        f"memory {amount / GIB:g} GB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in amounts.items()
    )


_PLENTY = 1e15
"""Bytes of memory, which is not what limits how many trials an algorithm proposes."""


def fitted(search: Search, place: Place) -> Search:
    """A search whose algorithms know how many of their trials run side by side at a place.

    Each seed of an arm gets its share of the room; a cluster is asked what it has.
    """
    arms = {arm.name: arm for arm in search.arms}
    own = {name: arm.algorithm for name, arm in arms.items()}
    asking = {n: it for n, it in own.items() if isinstance(it, Sampled) and it.window is None}
    if not asking:
        return search
    devices = 0
    if any(arm.resources.gpus for arm in search.arms):
        import torch

        devices = torch.cuda.device_count()
    machine = {
        "CPU": float(usable_cpus() if place.cpus is None else place.cpus),
        "GPU": float(min(devices, 1) if place.settled(search).executor == "local" else devices),
        "memory": _PLENTY,
    }
    nodes = [machine]
    if place.address is not None:
        from tuneparts.executors.ray import cluster

        with cluster.joined_once(place.address):
            nodes = [{**node, "memory": _PLENTY} for node in cluster.nodes().values()]
    for name, algorithm in asking.items():
        arm = arms[name]
        most = _most(search, arm, place.cpus)
        room = place.workers or slots(bundles(arm), nodes, most=most)
        width = math.ceil(min(room, most) / len(search.seeds_of(arm)))
        fitting = algorithm.for_width(max(1, width))
        arms[name] = arm.model_copy(update={"algorithm": fitting})
    return search.model_copy(update={"arms": tuple(arms.values())})


def _most(search: Search, arm: Arm, cpus: float | None) -> int:
    trials = arm.trials_per_seed * len(search.seeds_of(arm))
    fill = None if cpus is None else int(cpus / arm.resources.cpus)
    return min(limit for limit in (trials, search.at_once, arm.at_once, fill) if limit is not None)
