"""Templates for every cluster within a budget, and weights of many shapes from one chain of them.

Chain (Teterwak et al. 2024): the shapes of a cluster are sorted from small to large. The first slot
is the smallest layer; each later slot holds what is missing to the next shape: new input columns
for the rows that are there, then new output rows over the full width. A layer is put together from
the slots up to its own shape.

Legend: U uses, O rows (outputs), I columns (inputs), A kernel area, D size of a slot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights._clusters import Layer
from tuneparts.methods.superweights._similarity import Labels, members_of
from tuneparts.methods.superweights.config import MAX_TEMPLATES, ChainKind

Shape = tuple[int, int]
"""(outputs, inputs)"""


class ShortBudgetError(ConfigError):
    """A budget that cannot hold one template for each slot."""


@dataclass(frozen=True)
class Growth:
    """One slot of a chain: how much of the weight so far is kept, and how much is added."""

    rows: int
    columns: int
    new_rows: int
    new_columns: int

    @property
    def shape(self) -> Shape:
        return self.rows + self.new_rows, self.columns + self.new_columns

    @property
    def num_pairs(self) -> int:
        return self.rows * self.new_columns + self.new_rows * self.shape[1]


@dataclass(frozen=True)
class Chain:
    """The slots of a cluster, and the last slot that each shape needs."""

    area: int
    slots: tuple[Growth, ...]
    last_slot: dict[Shape, int]

    @property
    def sizes(self) -> list[int]:
        return [slot.num_pairs * self.area for slot in self.slots]


def build_chain(shapes: Iterable[Shape], area: int, kind: ChainKind) -> Chain:
    """Build the chain through these shapes, in any order; equal sizes are ordered by outputs."""
    slots: list[Growth] = []
    last_slot: dict[Shape, int] = {}
    rows = columns = 0
    for shape in sorted(set(shapes), key=lambda s: (s[0] * s[1], s)):
        num_out, num_in = shape
        if kind == "envelope":
            num_out, num_in = max(rows, num_out), max(columns, num_in)
        kept = min(rows, num_out), min(columns, num_in)
        slot = Growth(*kept, num_out - kept[0], num_in - kept[1])
        if slot.num_pairs:
            slots.append(slot)
            rows, columns = slot.shape
        last_slot[shape] = len(slots) - 1
    return Chain(area, tuple(slots), last_slot)


def assemble(chain: Chain, parts_UD: Sequence[Tensor], shape: Shape) -> Tensor:
    """Assemble weights (U, O, I, A) of one shape from flat SuperWeights of slots 0 to its last."""
    area = chain.area
    weight_UOIA = parts_UD[0].reshape(-1, *chain.slots[0].shape, area)
    for slot, part_UD in zip(chain.slots[1:], parts_UD[1:], strict=False):
        weight_UOIA = weight_UOIA[:, : slot.rows, : slot.columns]
        split = slot.rows * slot.new_columns * area
        if slot.new_columns:
            beside = part_UD[:, :split].reshape(-1, slot.rows, slot.new_columns, area)
            weight_UOIA = torch.cat([weight_UOIA, beside], dim=2)
        if slot.new_rows:
            below = part_UD[:, split:].reshape(-1, slot.new_rows, slot.shape[1], area)
            weight_UOIA = torch.cat([weight_UOIA, below], dim=1)
    return weight_UOIA[:, : shape[0], : shape[1]]


def disassemble(chain: Chain, gradient_UOIA: Tensor) -> list[Tensor]:
    """The adjoint of `assemble`: parts (U, D) of each slot; zero where weights were cropped."""
    num_uses, num_out, num_in, _ = gradient_UOIA.shape
    parts = []
    for slot in reversed(chain.slots[: chain.last_slot[num_out, num_in] + 1]):
        _, rows, columns, _ = gradient_UOIA.shape
        more = (0, 0, 0, slot.shape[1] - columns, 0, slot.shape[0] - rows)
        grown = F.pad(gradient_UOIA, more)
        beside = grown[:, : slot.rows, slot.columns :].reshape(num_uses, -1)
        below = grown[:, slot.rows :].reshape(num_uses, -1)
        parts.append(torch.cat([beside, below], dim=1))
        gradient_UOIA = grown[:, : slot.rows, : slot.columns]
    return parts[::-1]


def split_budget(
    sizes: Sequence[int], uses: Sequence[int], *, budget: int, max_templates: int = MAX_TEMPLATES
) -> list[int]:
    """The number of templates of each slot, by the size of one and the layers that use it.

    After one each, the rest is dealt out in rounds, earlier slots first: to those with more uses
    than templates, then to all (the default of Teterwak et al. 2024, as released).
    """
    # The released code exceeds a budget that is too small for one template a slot.
    least = sum(sizes)
    if budget < least:
        raise ShortBudgetError(
            f"the budget must hold one template for each of {len(sizes)} slots, which takes "
            f"{least} weights, but is {budget}. Raise it, use fewer clusters, or let clusters be "
            "merged (`when_short`)."
        )
    templates = [1] * len(sizes)
    left = budget - least
    for needs_users in (True, False):
        for already in range(1, max_templates):
            for slot, size in enumerate(sizes):
                is_wanted = uses[slot] > already if needs_users else templates[slot] < max_templates
                if is_wanted and size <= left:
                    templates[slot] += 1
                    left -= size
    return templates


@dataclass(frozen=True)
class LayerCluster:
    layers: tuple[int, ...]
    """Positions in the plan's layers, by last slot, then by shape, then in the order of the plan;
    the users of a slot are therefore the last ones."""
    last_slots: tuple[int, ...]
    chain: Chain
    templates: tuple[int, ...]

    def users(self, slot: int) -> tuple[int, ...]:
        return tuple(p for p, end in zip(self.layers, self.last_slots, strict=True) if end >= slot)


@dataclass(frozen=True)
class SharingPlan:
    """The whole allocation: layers, their clusters, and the templates of each cluster's slots."""

    layers: tuple[Layer, ...]
    labels: tuple[int, ...]
    clusters: tuple[LayerCluster, ...]

    @property
    def num_weights(self) -> int:
        return sum(
            count * size
            for cluster in self.clusters
            for count, size in zip(cluster.templates, cluster.chain.sizes, strict=True)
        )

    @property
    def slots(self) -> list[tuple[LayerCluster, int]]:
        """Cluster and number of every slot, in the order of templates."""
        return [(cluster, j) for cluster in self.clusters for j in range(len(cluster.templates))]


def make_plan(
    layers: Sequence[Layer],
    labels: Labels,
    *,
    budget: int,
    max_templates: int = MAX_TEMPLATES,
    chain: ChainKind = "growth",
) -> SharingPlan:
    """Build the chains of the clusters, each of one kind of layer, and deal the budget out."""
    least = _least_plan(layers, labels, chain)
    sizes = [cluster.chain.sizes[j] for cluster, j in least.slots]
    uses = [len(cluster.users(j)) for cluster, j in least.slots]
    counts = iter(split_budget(sizes, uses, budget=budget, max_templates=max_templates))
    dealt = (replace(c, templates=tuple(islice(counts, len(c.templates)))) for c in least.clusters)
    return replace(least, clusters=tuple(dealt))


def least_weights(layers: Sequence[Layer], labels: Labels, chain: ChainKind = "growth") -> int:
    """Compute the smallest budget that these clusters take: one template for every slot."""
    return _least_plan(layers, labels, chain).num_weights


def _least_plan(layers: Sequence[Layer], labels: Labels, kind: ChainKind) -> SharingPlan:
    clusters = []
    for positions in members_of(labels).values():
        chain = build_chain([layers[p].pair for p in positions], layers[positions[0]].area, kind)
        # Layers of one last slot may differ in shape in an envelope chain; keep shapes together.
        order = sorted((chain.last_slot[layers[p].pair], layers[p].pair, p) for p in positions)
        last_slots, _, places = zip(*order, strict=True)
        clusters.append(LayerCluster(places, last_slots, chain, (1,) * len(chain.slots)))
    return SharingPlan(tuple(layers), tuple(labels), tuple(clusters))
