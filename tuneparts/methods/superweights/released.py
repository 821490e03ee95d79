"""Who shares with whom by the rules of the authors' released code, where they are not the paper's.

Teterwak et al. (2024) state Algorithm 1 over all layers: groups of similar layers are united. Their
code differs in three ways, which change clusters, and which published figures may depend on:

- Pairs are walked from the most similar one down, but only one layer of a pair moves: it takes the
  label of the other, and those that had joined it before stay behind. Groups are finer than united
  ones, and depend on the order. Coefficients are untied by the same walk.
- Only layers of the first member are compared. The first member of each other depth joins them
  layer by layer where it is most similar; each further member of a depth follows the first one of
  that depth, its p-th layer of a bin the p-th.
- Layers are compared on one batch instead of an epoch.

Two habits of the code are left out, because they are slips and not rules: a tie of coefficients
that goes to another layer than the most similar one, and gradients of untied copies that get lost.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tuneparts.methods.superweights.clusters import Layer
from tuneparts.methods.superweights.similarity import Labels, Similarity, members_of, numbered


def relabelled(similarity_NN: Similarity, threshold: float) -> Labels:
    """Group items by moving one of each pair at a time, the most similar pair first.

    Of pairs that are equally similar, the last in order comes first, as the code's queue has it.

    Args:
        similarity_NN: symmetric; NaN is not similar.
        threshold: pairs strictly above it are taken.

    Example:
        >>> import numpy as np
        >>> chain = np.full((4, 4), -1.0)
        >>> chain[0, 1], chain[2, 3], chain[1, 2] = 0.9, 0.8, 0.5
        >>> relabelled(np.maximum(chain, chain.T), 0.1)
        [0, 0, 0, 1]
    """
    rows, columns = np.triu_indices(len(similarity_NN), k=1)
    found = zip(similarity_NN[rows, columns].tolist(), rows.tolist(), columns.tolist(), strict=True)
    labels = list(range(len(similarity_NN)))
    for _, earlier, later in sorted((one for one in found if one[0] > threshold), reverse=True):
        labels[later] = labels[earlier]
    return numbered(labels)


def leaders(
    layers: Sequence[Layer], bins: Labels, similarities: Mapping[int, Similarity]
) -> dict[int, int]:
    """Find the layer that each layer of the other members follows: position -> position.

    A layer of the first member of a depth follows the most similar one of the first member in its
    bin, further members of the depth that member. Members have one depth if they have as many
    layers in every bin. Layers of a bin in which the first member has none follow nobody.

    Args:
        layers: the layers of all members.
        bins: the bin of each.
        similarities: for each bin, (N, N) over its layers in order.
    """
    found: dict[int, int] = {}
    seen: dict[tuple[int, ...], int] = {}
    for member in sorted({layer.member for layer in layers}):
        depth = _depth(layers, bins, member)
        is_first_of_depth = depth not in seen
        followed = 0 if is_first_of_depth else seen[depth]
        seen.setdefault(depth, member)
        if member == 0:
            continue
        for label, positions in members_of(bins).items():
            own = [i for i, p in enumerate(positions) if layers[p].member == member]
            others = [i for i, p in enumerate(positions) if layers[p].member == followed]
            if not others:
                continue
            for place, i in enumerate(own):
                near_N = np.nan_to_num(similarities[label][i, others], nan=-np.inf)
                chosen = int(np.argmax(near_N)) if is_first_of_depth else place
                found[positions[i]] = positions[others[chosen]]
    return found


def _depth(layers: Sequence[Layer], bins: Labels, member: int) -> tuple[int, ...]:
    """How many layers a member has in each bin."""
    own = [label for layer, label in zip(layers, bins, strict=True) if layer.member == member]
    return tuple(own.count(label) for label in sorted(set(bins)))


def split(
    layers: Sequence[Layer], bins: Labels, similarities: Mapping[int, Similarity], threshold: float
) -> Labels:
    """Split each bin by relabelling the layers of its first member; the others follow.

    Args:
        layers: the layers of all members.
        bins: the bin of each.
        similarities: for each bin, (N, N) over its layers in order.
        threshold: tau of the paper.
    """
    following = leaders(layers, bins, similarities)
    new = [0] * len(bins)
    count = 0
    for label, positions in members_of(bins).items():
        first = [i for i, p in enumerate(positions) if p not in following]
        parts = relabelled(similarities[label][np.ix_(first, first)], threshold)
        own = {positions[i]: count + part for i, part in zip(first, parts, strict=True)}
        for position in positions:
            leader = position
            while leader in following:
                leader = following[leader]
            new[position] = own[leader]
        count += max(parts) + 1
    return new
