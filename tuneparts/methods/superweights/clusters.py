"""Which layers of which member share weights, and which of them draw from the same templates.

Every convolution and linear layer shares weights but the last one, the head. Norms, biases and
heads stay private to a member (Teterwak et al. 2024, as released). Clusters start as bins of
relative depth, one set of bins per kind of layer; they are then only ever split, or merged when a
budget asks for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights.similarity import (
    Labels,
    Similarity,
    group,
    members_of,
    numbered,
)
from tuneparts.models.reweighted import tied_names

WeightLayer = nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class Layer:
    """A layer of a member that shares weights."""

    member: int
    name: str
    """Name of the module inside its net."""
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
    def area(self) -> int:
        """Weights per pair of channels."""
        return self.kernel[0] * self.kernel[1] if self.kernel else 1

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.num_out * self.num_in * self.area

    @property
    def fan_in(self) -> int:
        """Weights per output."""
        return self.num_in * self.area

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight tensor."""
        return (self.num_out, self.num_in, *self.kernel)


def layers_of(net: nn.Module, member: int, names: Sequence[str] | None = None) -> list[Layer]:
    """List the layers of a net that share weights, in forward order, without the head.

    Args:
        net: a member; layers are taken to be registered in forward order.
        member: its number.
        names: of exactly the layers to list, in forward order, where they are known.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> [(layer.name, layer.kind, layer.shape) for layer in layers_of(net, member=0)]
        [('0', 'linear', (8, 4))]
    """
    found = {
        name: module for name, module in net.named_modules() if isinstance(module, WeightLayer)
    }
    if names is not None:
        return [_layer(member, name, found[name]) for name in names]
    *shared, _head = found.items() if found else [("", None)]
    if not shared:
        raise ConfigError(
            "a member needs a convolution or linear layer before its head to share weights, but "
            f"member {member} has {len(found)} such layers in all. Use a deeper net."
        )
    tied = {name: others[0] for name, others in tied_names(net).items()}
    tied |= {other: name for name, others in tied_names(net).items() for other in others}
    for name, _ in shared:
        if f"{name}.weight" in tied:
            raise ConfigError(
                "a layer that shares templates must own its weight, or a tie would come apart, but "
                f"`{name}.weight` of member {member} is also `{tied[f'{name}.weight']}`. Use "
                "weights of their own."
            )
    return [_layer(member, name, found[name]) for name, _ in shared]


def _layer(member: int, name: str, module: WeightLayer) -> Layer:
    num_out, num_in, *kernel = module.weight.shape
    if isinstance(module, nn.Linear):
        kind = "linear"
    else:
        # Kept apart: a grouped filter sees few channels, so its first columns mean something else.
        kind = f"{'conv' if module.groups == 1 else 'grouped'}{kernel[0]}x{kernel[1]}"
    std = None if module.weight.is_meta else float(module.weight.detach().std(correction=0))
    return Layer(member, name, kind, num_out, num_in, tuple(kernel), std)


def largest_member(layers: Sequence[Layer]) -> int:
    """Count the weights that the shared layers of the largest member have alone."""
    sizes: dict[int, int] = {}
    for layer in layers:
        sizes[layer.member] = sizes.get(layer.member, 0) + layer.size
    return max(sizes.values())


def depth_bins(layers: Sequence[Layer], num_bins: int | None) -> Labels:
    """Put layers into bins of relative depth.

    The first member that has a kind of layer decides how many of the bins the kind gets: its
    share of all layers, at least one. Each member's layers of the kind are then cut into runs as
    equal as possible, earlier ones longer.

    Args:
        layers: the layers of all members, in forward order within a member.
        num_bins: number of bins over all kinds; None gives each layer of the deciding member its
            own.
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
    """Assign `num` items to runs; fewer items than bins are spread over them by relative place."""
    if num < bins:
        return [i * bins // num for i in range(num)]
    size, extra = divmod(num, bins)
    return [run for run in range(bins) for _ in range(size + (run < extra))]


def split_by_similarity(
    labels: Labels, similarities: dict[int, Similarity], threshold: float
) -> Labels:
    """Split each cluster by Algorithm 1 over all its layers.

    Args:
        labels: clusters so far.
        similarities: for each cluster, (N, N) over its layers in order.
        threshold: tau of the paper.
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
    """Split each cluster by Algorithm 1 over the layers of the first member it has.

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
    """Deal layers at random to the same number of clusters of the same sizes: a control.

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
        layers: the layers of all members.
        labels: clusters in order of depth within a kind.
        least: computes the smallest number of template weights that clusters need.
        budget: the number of template weights that they may need.

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
