"""Which layers draw from the same templates: a cluster number for each layer.

Clusters start as bins of relative depth, one set of bins per kind of layer (Teterwak et al. 2024);
they are then only ever split, or merged when a budget asks for it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from tuneparts.superweights.grouping import group, numbered
from tuneparts.superweights.layers import Layer
from tuneparts.superweights.similarity import Similarity

Labels = list[int]
"""Cluster of each layer, in the order of the layers."""


def depth_bins(layers: Sequence[Layer], num_bins: int | None) -> Labels:
    """Bins of relative depth.

    The first member that has a kind of layer decides how many of the bins the kind gets: its
    share of all layers, at least one. Each member's layers of the kind are then cut into runs as
    equal as possible, earlier ones longer.

    Args:
        layers: of all members, in forward order within a member.
        num_bins: over all kinds; None gives each layer of the deciding member its own.
    """
    labels = [0] * len(layers)
    start = 0
    for kind in sorted({layer.kind for layer in layers}):
        members = sorted({layer.member for layer in layers if layer.kind == kind})
        positions = {m: _positions(layers, m, kind) for m in members}
        first = members[0]
        num_kind = len(positions[first])
        num_all = sum(layer.member == first for layer in layers)
        bins = num_kind if num_bins is None else max(1, round(num_bins * num_kind / num_all))
        for member in members:
            for position, number in zip(
                positions[member], _runs(len(positions[member]), bins), strict=True
            ):
                labels[position] = start + number
        start += bins
    return labels


def _positions(layers: Sequence[Layer], member: int, kind: str) -> list[int]:
    return [i for i, x in enumerate(layers) if x.member == member and x.kind == kind]


def _runs(num: int, bins: int) -> list[int]:
    """Run of each of `num` items; fewer items than bins are spread over them by relative place."""
    if num < bins:
        return [i * bins // num for i in range(num)]
    size, extra = divmod(num, bins)
    return [run for run in range(bins) for _ in range(size + (run < extra))]


def split_by_similarity(
    labels: Labels, similarities: dict[int, Similarity], threshold: float
) -> Labels:
    """Each cluster split by Algorithm 1 over all its layers.

    Args:
        labels: clusters so far.
        similarities: for each cluster, (N, N) over its layers in order.
        threshold: tau.
    """
    new = [0] * len(labels)
    count = 0
    for label, positions in members_of(labels).items():
        parts = group(similarities[label], threshold)
        for position, part in zip(positions, parts, strict=True):
            new[position] = count + part
        count += max(parts) + 1
    return new


def split_by_reference(
    layers: Sequence[Layer], labels: Labels, similarities: dict[int, Similarity], threshold: float
) -> Labels:
    """Each cluster split by Algorithm 1 over the layers of the first member it has.

    The layers of the other members join the most similar of those layers, as in the released
    code; layers that are similar to none of them join the first.
    """
    new = [0] * len(labels)
    count = 0
    for label, positions in members_of(labels).items():
        first = min(layers[p].member for p in positions)
        own = [i for i, p in enumerate(positions) if layers[p].member == first]
        parts = group(similarities[label][np.ix_(own, own)], threshold)
        for i, position in enumerate(positions):
            nearest = own.index(i) if i in own else _nearest(similarities[label][i, own])
            new[position] = count + parts[nearest]
        count += max(parts) + 1
    return new


def _nearest(similarity_N: Similarity) -> int:
    return int(np.argmax(np.nan_to_num(similarity_N, nan=-np.inf)))


def shuffled(labels: Labels, within: Labels, generator: np.random.Generator) -> Labels:
    """The same number and sizes of clusters, with layers dealt to them at random.

    Args:
        labels: clusters to imitate.
        within: coarser clusters; layers never leave theirs.
        generator: source of the draw.
    """
    new = list(labels)
    for positions in members_of(within).values():
        for position, other in zip(positions, generator.permutation(positions), strict=True):
            new[position] = labels[other]
    return numbered(new)


def merge_to_fit(
    layers: Sequence[Layer], labels: Labels, least: Callable[[Labels], int], budget: int
) -> Labels:
    """Merge neighbouring clusters of one kind, the pair that saves most first, until they fit.

    Args:
        layers: of all members.
        labels: clusters in order of depth within a kind.
        least: weights that clusters need at least.
        budget: what they may need.

    Returns:
        Clusters that fit, or one cluster per kind if nothing does.
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


def members_of(labels: Labels) -> dict[int, list[int]]:
    """Positions of the layers of each cluster, ascending."""
    found: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        found.setdefault(label, []).append(position)
    return dict(sorted(found.items()))
