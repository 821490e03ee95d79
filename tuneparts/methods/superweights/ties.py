"""Ties: which uses of a slot share one coefficient vector.

Ties are numbers: for each slot of a plan, the row of its coefficient matrix that each user takes.
Tied uses take the same row, so that one parameter serves them all and resuming cannot untie them.
Separating them adds rows that start as copies, so that predictions do not change at that moment.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuneparts.methods.superweights.allocation import SharingPlan
from tuneparts.methods.superweights.similarity import Similarity, group, numbered

Ties = list[list[int]]
"""For each slot of the plan, a row for each of its users; rows in order of first appearance."""


def private(plan: SharingPlan) -> Ties:
    """Give every use coefficients of its own."""
    return [list(range(len(plan.clusters[c].users(j)))) for c, j in plan.slots]


def shared(plan: SharingPlan) -> Ties:
    """Give each slot one vector: hard sharing, as in the search for clusters."""
    return [[0] * len(plan.clusters[c].users(j)) for c, j in plan.slots]


def mapped(plan: SharingPlan, partner: Mapping[int, int]) -> Ties:
    """Give each layer the coefficients of its partner in every slot that both use.

    Args:
        plan: the allocation.
        partner: position of a layer -> position of the layer it is tied to, which may be tied
            itself; only those in the same cluster count.
    """
    ties = []
    for c, j in plan.slots:
        users = plan.clusters[c].users(j)
        leaders = []
        for position in users:
            leader = position
            while partner.get(leader) in users:
                leader = partner[leader]
            leaders.append(leader)
        ties.append(numbered(leaders))
    return ties


def split(
    ties: Ties,
    similarities: Sequence[Similarity],
    threshold: float,
    group: Callable[[Similarity, float], list[int]] = group,
) -> tuple[Ties, list[list[int]]]:
    """Separate tied uses that are not similar enough, slot by slot.

    Args:
        ties: what is tied so far.
        similarities: for each slot, (U, U) over its users.
        threshold: beta of the paper; uses stay tied through pairs strictly above it.
        group: groups of uses by their similarities and the threshold; Algorithm 1 unless given.

    Returns:
        The new ties, and for each slot the old row that each new row is a copy of.
    """
    new_ties: Ties = []
    origins: list[list[int]] = []
    for rows, similarity_UU in zip(ties, similarities, strict=True):
        new_rows = [0] * len(rows)
        count = 0
        for row in dict.fromkeys(rows):
            users = [user for user, other in enumerate(rows) if other == row]
            parts = group(similarity_UU[np.ix_(users, users)], threshold)
            for user, part in zip(users, parts, strict=True):
                new_rows[user] = count + part
            count += max(parts) + 1
        new_rows = numbered(new_rows)
        new_ties.append(new_rows)
        origins.append([rows[new_rows.index(row)] for row in range(count)])
    return new_ties, origins


def count(ties: Ties) -> int:
    """Count the coefficient vectors of all slots."""
    return sum(max(rows) + 1 for rows in ties)


def partners_by_similarity(
    plan: SharingPlan, bins: Sequence[int], similar: Mapping[int, Similarity]
) -> dict[int, int]:
    """Find the most similar layer of the first member for each layer of the others.

    Only layers of the same cluster count; a layer without one has no partner.

    Args:
        plan: the allocation.
        bins: the clusters that similarities were measured in, one for each layer.
        similar: for each of them, (N, N) over its layers in order.
    """
    partner = {}
    for label, similarity_NN in similar.items():
        positions = [p for p, other in enumerate(bins) if other == label]
        for i, position in enumerate(positions):
            options = [
                (float(similarity_NN[i, k]), -k)
                for k, other in enumerate(positions)
                if _may_lead(plan, other, position) and np.isfinite(similarity_NN[i, k])
            ]
            if options:
                partner[position] = positions[-max(options)[1]]
    return partner


def partners_by_place(plan: SharingPlan) -> dict[int, int]:
    """Find the first member's layer at the same relative place of the cluster, if it has any."""
    partner = {}
    for cluster in plan.clusters:
        positions = sorted(cluster.layers)
        for position in positions:
            leaders = [p for p in positions if _may_lead(plan, p, position)]
            member = plan.layers[position].member
            own = [p for p in positions if plan.layers[p].member == member]
            if leaders:
                place = (2 * own.index(position) + 1) * len(leaders) // (2 * len(own))
                partner[position] = leaders[place]
    return partner


def _may_lead(plan: SharingPlan, leader: int, follower: int) -> bool:
    first, other = plan.layers[leader], plan.layers[follower]
    is_same_cluster = plan.labels[leader] == plan.labels[follower]
    return first.member == 0 and other.member != 0 and is_same_cluster
