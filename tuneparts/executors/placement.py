"""Whether a trial fits: what it reserves against what each machine has. Arithmetic, no Ray."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tuneparts.core.errors import PlacementError
from tuneparts.search.arm import Arm, Resources

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
    """Count the trials that fit at once, each placed on the first node with room for it.

    Args:
        trial: bundles of one trial; each lies on one node, several may lie on different ones.
        nodes: what each node has.
        most: where to stop counting.

    Example:
        >>> slots([{"CPU": 1, "GPU": 0.5}], [{"CPU": 8, "GPU": 1}])
        2
    """
    needs = [_steps(need) for need in trial]
    free = [_steps(node) for node in nodes]
    placed = 0
    while placed < most and all(_reserve(need, free) for need in needs):
        placed += 1
    return placed


class Room:
    """What is free on each node, and what workers take of it.

    Args:
        nodes: node -> what it has.
        cpus: CPUs that may be taken in all; None for all that there are.

    Example:
        >>> room = Room({"a": {"CPU": 2}}, cpus=1)
        >>> room.reserve([{"CPU": 1}]), room.reserve([{"CPU": 1}])
        (True, False)
    """

    def __init__(self, nodes: Mapping[str, Amounts], cpus: float | None = None) -> None:
        self._free = {node: _steps(amounts) for node, amounts in nodes.items()}
        self._cpus = None if cpus is None else _steps({"CPU": cpus})["CPU"]

    def reserve(self, trial: Sequence[Amounts]) -> bool:
        """Take what a trial needs from the first nodes that have it; returns whether they do."""
        needs = [_steps(need) for need in trial]
        free = {node: dict(amounts) for node, amounts in self._free.items()}
        cpus = sum(need.get("CPU", 0) for need in needs)
        if self._cpus is not None and cpus > self._cpus:
            return False
        if not all(_reserve(need, list(free.values())) for need in needs):
            return False
        self._free = free
        self._cpus = None if self._cpus is None else self._cpus - cpus
        return True

    def hold(self, trial: Sequence[Amounts], nodes: Sequence[str]) -> None:
        """Take what a trial has on the nodes where its bundles lie, there or not."""
        self._change(trial, nodes, sign=-1)

    def release(self, trial: Sequence[Amounts], nodes: Sequence[str]) -> None:
        """Give back what `hold` took."""
        self._change(trial, nodes, sign=1)

    def copy(self) -> "Room":
        """Make a room to try something out in."""
        other = Room({})
        other._free = {node: dict(amounts) for node, amounts in self._free.items()}
        other._cpus = self._cpus
        return other

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is taken than there is."""
        amounts = [amount for free in self._free.values() for amount in free.values()]
        return min(amounts, default=0) < 0 or (self._cpus or 0) < 0

    def _change(self, trial: Sequence[Amounts], nodes: Sequence[str], *, sign: int) -> None:
        for need, node in zip(trial, nodes, strict=True):
            for name, amount in _steps(need).items():
                free = self._free.setdefault(node, {})
                free[name] = free.get(name, 0) + sign * amount
                if name == "CPU" and self._cpus is not None:
                    self._cpus += sign * amount


def refuse_unplaceable(needs: Mapping[str, Sequence[Amounts]], nodes: Sequence[Amounts]) -> None:
    """Raise for an arm whose trials these nodes could never hold.

    Args:
        needs: the bundles of a trial of each arm.
        nodes: what each node has.

    Raises:
        PlacementError: Names the arm, what it needs, and the most that there is.
    """
    for arm, trial in needs.items():
        for need in trial:
            if not slots([need], nodes, most=1):
                _refuse(arm, need, nodes)
        if not slots(trial, nodes, most=1):
            total = {name: sum(n.get(name, 0.0) for n in trial) for n in trial for name in n}
            all_nodes = {name: sum(node.get(name, 0.0) for node in nodes) for name in total}
            raise PlacementError(
                f"a trial's {len(trial)} bundles must fit the cluster together, but those of "
                f"`{arm}` need {_text(total)} and the cluster has {_text(all_nodes)}. Add nodes, "
                "or lower what its tasks ask for."
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
        f"a trial must fit one node, but `{arm}` needs {_text({n: need[n] for n in names})} and "
        f"the cluster has {_text({n: most[n] for n in names})} on a node{together}. "
        "Add a larger node, or lower the arm's resources."
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
