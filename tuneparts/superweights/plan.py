"""The whole allocation as data: clusters, their chains, and templates per slot."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuneparts.superweights.budget import MAX_TEMPLATES, split_budget
from tuneparts.superweights.chain import Chain, ChainKind, build_chain
from tuneparts.superweights.clusters import Labels, members_of
from tuneparts.superweights.layers import Layer


@dataclass(frozen=True)
class Cluster:
    """Layers that draw from the same templates."""

    layers: tuple[int, ...]
    """Positions in the plan's layers, by last slot, then in the order of the plan."""
    last_slots: tuple[int, ...]
    """Of each of these layers; the users of slot j are therefore the last ones."""
    chain: Chain
    templates: tuple[int, ...]
    """Templates of each slot."""

    def users(self, slot: int) -> tuple[int, ...]:
        """Positions of the layers that use a slot."""
        return tuple(
            position
            for position, last in zip(self.layers, self.last_slots, strict=True)
            if last >= slot
        )


@dataclass(frozen=True)
class Plan:
    """Which templates there are, and which layers use them."""

    layers: tuple[Layer, ...]
    labels: tuple[int, ...]
    clusters: tuple[Cluster, ...]

    @property
    def num_weights(self) -> int:
        """Weights of all templates."""
        return sum(
            count * size
            for cluster in self.clusters
            for count, size in zip(cluster.templates, cluster.chain.sizes, strict=True)
        )

    @property
    def slots(self) -> list[tuple[int, int]]:
        """(cluster, slot) of every slot, in the order of templates."""
        return [(c, j) for c, x in enumerate(self.clusters) for j in range(len(x.templates))]

    def outline(self) -> str:
        """One line per slot, for reading."""
        lines = []
        for number, cluster in enumerate(self.clusters):
            kind = self.layers[cluster.layers[0]].kind
            for slot, size in enumerate(cluster.chain.sizes):
                lines.append(
                    f"cluster {number} ({kind}) slot {slot}: {cluster.templates[slot]} templates "
                    f"of {size} weights for {len(cluster.users(slot))} layers"
                )
        return "\n".join(lines)


def make_plan(
    layers: Sequence[Layer],
    labels: Labels,
    *,
    budget: int,
    max_templates: int = MAX_TEMPLATES,
    chain: ChainKind = "growth",
) -> Plan:
    """Chains for the clusters, and the budget dealt out to their slots.

    Args:
        layers: of all members.
        labels: cluster of each layer; a cluster holds one kind of layer.
        budget: weights of all templates together; refused when below `least_weights`.
        max_templates: of one slot.
        chain: how shapes of a cluster are put together.
    """
    grown = _chains(layers, labels, chain)
    sizes = [size for c, _ in grown for size in c.sizes]
    uses = [
        sum(c.last_slot[_pair(layers[p])] >= slot for p in positions)
        for c, positions in grown
        for slot in range(len(c.slots))
    ]
    counts = iter(split_budget(sizes, uses, budget=budget, max_templates=max_templates))
    clusters = []
    for c, positions in grown:
        last = {p: c.last_slot[_pair(layers[p])] for p in positions}
        # Layers of one last slot may differ in shape in an envelope chain; keep shapes together.
        order = sorted(positions, key=lambda p, last=last: (last[p], _pair(layers[p]), p))  # type: ignore[misc]
        clusters.append(
            Cluster(
                layers=tuple(order),
                last_slots=tuple(last[p] for p in order),
                chain=c,
                templates=tuple(next(counts) for _ in c.slots),
            )
        )
    return Plan(tuple(layers), tuple(labels), tuple(clusters))


def least_weights(layers: Sequence[Layer], labels: Labels, chain: ChainKind = "growth") -> int:
    """Weights of one template for every slot: the smallest budget that these clusters take."""
    return sum(sum(c.sizes) for c, _ in _chains(layers, labels, chain))


def _chains(
    layers: Sequence[Layer], labels: Labels, kind: ChainKind
) -> list[tuple[Chain, list[int]]]:
    return [
        (
            build_chain([_pair(layers[p]) for p in positions], layers[positions[0]].area, kind),
            positions,
        )
        for positions in members_of(labels).values()
    ]


def _pair(layer: Layer) -> tuple[int, int]:
    return layer.num_out, layer.num_in
