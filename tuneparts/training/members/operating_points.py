"""Subsets of members as operating points: what they cost and how good they are.

An ensemble can stop after any of its members; every subset is a point of accuracy against
operations (the anytime inference of Teterwak et al. 2024). Cost is additive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from tuneparts.training.members.predictions import mean_log_probs
from tuneparts.training.scores import scores

ALL_SUBSETS_UP_TO = 6
"""Members; larger ensembles have the points of their first 1, 2, ... members only."""


@dataclass(frozen=True)
class OperatingPoint:
    """A subset of members with its cost and scores."""

    members: tuple[int, ...]
    flops: int
    accuracy: float
    nll: float

    @property
    def name(self) -> str:
        """The members joined, as in `0_2`."""
        return "_".join(map(str, self.members))


def subsets(num_members: int) -> list[tuple[int, ...]]:
    """Every non-empty subset, or the prefixes of a large ensemble."""
    everyone = range(num_members)
    if num_members > ALL_SUBSETS_UP_TO:
        return [tuple(everyone[: size + 1]) for size in everyone]
    return [chosen for size in everyone for chosen in combinations(everyone, size + 1)]


def operating_points(
    logits_MNK: Tensor, labels_N: Tensor, flops: Sequence[int]
) -> list[OperatingPoint]:
    """The points of all subsets, cheapest first.

    Args:
        logits_MNK: of all members.
        labels_N: the classes.
        flops: of each member for one example.
    """
    points = []
    for members in subsets(len(logits_MNK)):
        found = scores(mean_log_probs(logits_MNK[list(members)]), labels_N)
        cost = sum(flops[m] for m in members)
        points.append(OperatingPoint(members, cost, found["accuracy"], found["nll"]))
    return sorted(points, key=lambda point: (point.flops, point.members))
