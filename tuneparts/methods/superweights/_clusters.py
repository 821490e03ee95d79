"""Which layers of which member share weights, and which of them draw from the same templates.

Every convolution and linear layer shares weights but the last one, the head. Norms, biases and
heads stay private to a member (Teterwak et al. 2024, as released). Clusters start as bins of
relative depth, one set of bins per kind of layer; they are then only ever split, or merged when a
budget asks for it.

The paper states Algorithm 1 over all layers: groups of similar layers are united. The authors' code
differs in three ways, on which published figures may depend. It groups by `similarity.relabelled`,
coefficients too, more finely and by order; it compares only layers of the first member, which the
others follow (`released_leaders`); and it takes one batch instead of an epoch. Two slips are left
out: ties to another layer than the most similar one, and lost gradients of untied copies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import numpy as np
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights._similarity import Labels, Similarity, members_of, numbered
from tuneparts.nets.surgery import tied_names


@dataclass(frozen=True)
class Layer:
    """A layer of a member that shares weights."""

    member: int
    name: str
    kind: str
    """Type of layer and kernel size; only layers of one kind can share."""
    num_out: int
    num_in: int
    """Per group of channels."""
    kernel: tuple[int, ...]
    """(height, width), or () of a linear layer."""
    std: float | None = field(default=None, compare=False)
    """Standard deviation with which the net's own weight starts, where it is known."""

    @property
    def pair(self) -> tuple[int, int]:
        return self.num_out, self.num_in

    @property
    def area(self) -> int:
        return prod(self.kernel)

    @property
    def fan_in(self) -> int:
        return self.num_in * self.area

    @property
    def size(self) -> int:
        return self.num_out * self.fan_in

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_out, self.num_in, *self.kernel)


def layers_of(net: nn.Module, member: int, names: Sequence[str] | None = None) -> list[Layer]:
    """List the layers of a net that share weights: of these names, or all before the head.

    Layers are taken to be registered in forward order.
    """
    found = {n: m for n, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    if names is None:
        names = list(found)[:-1]
        if not names:
            raise ConfigError(
                "a member needs a convolution or linear layer before its head to share weights, "
                f"but member {member} has {len(found)} such layers in all. Use a deeper net."
            )
        for tied in ((name, *others) for name, others in tied_names(net).items()):
            if any(one.removesuffix(".weight") in names for one in tied):
                raise ConfigError(
                    f"`{'`, `'.join(tied)}` of member {member} are one: a layer that shares "
                    "templates must own its weight, or a tie would come apart."
                )
    layers = []
    for name in names:
        weight, groups = found[name].weight, getattr(found[name], "groups", 1)
        num_out, num_in, *kernel = weight.shape
        # Kept apart: a grouped filter sees few channels, so its first columns mean something else.
        conv = f"{'conv' if groups == 1 else 'grouped'}{'x'.join(map(str, kernel))}"
        std = None if weight.is_meta else float(weight.detach().std(correction=0))
        kind = conv if kernel else "linear"
        layers.append(Layer(member, name, kind, num_out, num_in, tuple(kernel), std))
    return layers


def largest_member(layers: Sequence[Layer]) -> int:
    """Count the weights that the shared layers of the largest member have alone."""
    members = {layer.member for layer in layers}
    return max(sum(layer.size for layer in layers if layer.member == m) for m in members)


def depth_bins(layers: Sequence[Layer], num_bins: int | None) -> Labels:
    """Bins of relative depth.

    The first member that has a kind of layer decides how many of the bins the kind gets: its
    share of all layers, at least one, or one for each layer if `num_bins` is None. Each member's
    layers of the kind are then cut into runs as equal as possible, earlier ones longer.
    """
    labels = [0] * len(layers)
    start = 0
    for kind in sorted({layer.kind for layer in layers}):
        places: dict[int, list[int]] = {}
        for position, layer in enumerate(layers):
            if layer.kind == kind:
                places.setdefault(layer.member, []).append(position)
        first = min(places)
        num_kind, num_all = len(places[first]), sum(layer.member == first for layer in layers)
        bins = num_kind if num_bins is None else max(1, round(num_bins * num_kind / num_all))
        for own in places.values():
            size, extra = divmod(len(own), bins)
            runs = [run for run in range(bins) for _ in range(size + (run < extra))]
            if len(own) < bins:  # spread over them by relative place
                runs = [i * bins // len(own) for i in range(len(own))]
            for position, run in zip(own, runs, strict=True):
                labels[position] = start + run
        start += bins
    return labels


def reference_leaders(
    layers: Sequence[Layer], bins: Labels, similarities: Mapping[int, Similarity]
) -> dict[int, int]:
    """The most similar layer, or else the first, of a bin's first member for those of others."""
    found = {}
    for label, positions in members_of(bins).items():
        first = min(layers[p].member for p in positions)
        leading = [i for i, p in enumerate(positions) if layers[p].member == first]
        for i, position in enumerate(positions):
            if i not in leading:
                found[position] = positions[leading[_nearest(similarities[label][i, leading])]]
    return found


def released_leaders(
    layers: Sequence[Layer], bins: Labels, similarities: Mapping[int, Similarity]
) -> dict[int, int]:
    """Find the layer that each layer of the other members follows in the released code.

    A layer of the first member of a depth follows the most similar one of the first member in its
    bin; of further members of the depth, the p-th layer of a bin follows the p-th of that member.
    Members have one depth if they have as many layers in every bin. Layers of a bin in which the
    first member has none follow nobody.
    """
    found: dict[int, int] = {}
    seen: dict[tuple[int, ...], int] = {}
    for member in sorted({layer.member for layer in layers}):
        inside = [bins[p] for p, layer in enumerate(layers) if layer.member == member]
        depth = tuple(inside.count(label) for label in sorted(set(bins)))
        is_first_of_depth, followed = depth not in seen, seen.get(depth, 0)
        seen.setdefault(depth, member)
        if member == 0:
            continue
        for label, positions in members_of(bins).items():
            own = [i for i, p in enumerate(positions) if layers[p].member == member]
            others = [i for i, p in enumerate(positions) if layers[p].member == followed]
            for place, i in enumerate(own if others else ()):
                near_N = similarities[label][i, others]
                chosen = _nearest(near_N) if is_first_of_depth else place
                found[positions[i]] = positions[others[chosen]]
    return found


def _nearest(similarity_N: Similarity) -> int:
    return int(np.argmax(np.nan_to_num(similarity_N, nan=-np.inf)))


def shuffled(labels: Labels, within: Labels, generator: np.random.Generator) -> Labels:
    """Deal layers at random, `within` coarser clusters, to as large ones: a control."""
    new = list(labels)
    for positions in members_of(within).values():
        for position, other in zip(positions, generator.permutation(positions), strict=True):
            new[position] = labels[other]
    return numbered(new)


def merge_to_fit(
    layers: Sequence[Layer], labels: Labels, least: Callable[[Labels], int], budget: int
) -> Labels:
    """Merge neighbouring clusters of one kind, the pair that saves most first, until they fit.

    At the most, one cluster per kind is left; `least` is the fewest weights that clusters need.
    """
    while least(labels) > budget:
        kinds = {label: layers[p[0]].kind for label, p in members_of(labels).items()}
        order = sorted(kinds, key=lambda label: (kinds[label], label))
        pairs = [(a, b) for a, b in pairwise(order) if kinds[a] == kinds[b]]
        if not pairs:
            break
        options = [[a if label == b else label for label in labels] for a, b in pairs]
        labels = min(options, key=least)
    return numbered(labels)
