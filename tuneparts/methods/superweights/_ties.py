"""Ties: which uses of a slot share one coefficient vector.

Ties are numbers: for each slot of a plan, the row of its coefficient matrix that each user takes.
Tied uses take the same row, so that one parameter serves them all and resuming cannot untie them.
Separating them adds rows that start as copies, so that predictions do not change at that moment.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuneparts.methods.superweights import _similarity
from tuneparts.methods.superweights._allocation import SharingPlan
from tuneparts.methods.superweights._similarity import Labels, Similarity, members_of, numbered

Ties = list[Labels]
"""For each slot of the plan, a row for each of its users; rows in order of first appearance."""


def private(plan: SharingPlan) -> Ties:
    """Give every use coefficients of its own."""
    return [list(range(len(cluster.users(j)))) for cluster, j in plan.slots]


def shared(plan: SharingPlan) -> Ties:
    """Give each slot one vector: hard sharing, as in the search for clusters."""
    return [[0] * len(cluster.users(j)) for cluster, j in plan.slots]


def mapped(plan: SharingPlan, partner: Mapping[int, int]) -> Ties:
    """Give each layer the coefficients of its partner, or of that one's, where both use a slot."""
    ties = []
    for cluster, j in plan.slots:
        users = cluster.users(j)
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
    grouping: Callable[[Similarity, float], Labels] = _similarity.group,
) -> tuple[Ties, list[list[int]]]:
    """Untie uses that are not similar (U, U) enough; also the old row that each new one copies."""
    new_ties: Ties = []
    origins: list[list[int]] = []
    for rows, similarity_UU in zip(ties, similarities, strict=True):
        tied = {row: similarity_UU[np.ix_(own, own)] for row, own in members_of(rows).items()}
        new_ties.append(numbered(_similarity.split(rows, tied, threshold, grouping=grouping)))
        origins.append([rows[own[0]] for own in members_of(new_ties[-1]).values()])
    return new_ties, origins


def partners_by_similarity(
    plan: SharingPlan, bins: Labels, similar: Mapping[int, Similarity]
) -> dict[int, int]:
    """The most similar layer of the first member, in the same cluster, for those of the others."""
    partner = {}
    for label, positions in members_of(bins).items():
        for i, position in enumerate(positions):
            near = {
                other: value
                for other, value in zip(positions, similar[label][i].tolist(), strict=True)
                if _may_lead(plan, other, position) and np.isfinite(value)
            }
            if near:
                partner[position] = max(near, key=near.__getitem__)
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
