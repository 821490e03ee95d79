"""The prediction of an ensemble and of its subsets, and how much its members differ.

An ensemble can stop after any of its members. Every subset is an operating point: accuracy against
operations (the anytime inference of Teterwak et al. 2024). The cost of a subset is the sum of its
members' costs.

Legend: M members, N examples, K classes.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, combinations

import torch
from torch import Tensor, nn

from tuneparts.data.target import Classes

ALL_SUBSETS_UP_TO = 6
"""Members; larger ensembles have the points of their first 1, 2, ... members only."""


def differences(logits_MNK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Mean accuracy of single members, and disagreement and diversity over pairs of them.

    Disagreement is the fraction of examples with different predictions. Diversity divides it by
    the error of one of the two, over both choices (Fort et al. 2019); it is left out where no
    member errs, and so are both for a single member.
    """
    predicted_MN = logits_MNK.argmax(dim=2)
    error_M = (predicted_MN != labels_N).double().mean(dim=1)
    values = {"member_accuracy": 1 - float(error_M.mean())}
    num = len(logits_MNK)
    if num == 1:
        return values
    differ_MM = (predicted_MN[:, None] != predicted_MN[None]).double().mean(dim=2)
    is_pair_MM = ~torch.eye(num, dtype=torch.bool, device=logits_MNK.device)
    values["disagreement"] = float(differ_MM[is_pair_MM].mean())
    usable_MM = is_pair_MM & (error_M > 0)[:, None]
    if usable_MM.any():
        ratios_MM = differ_MM / error_M.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
        values["diversity"] = float(ratios_MM[usable_MM].mean())
    return values


@dataclass(frozen=True)
class OperatingPoint:
    """A subset of members with its cost and scores."""

    members: tuple[int, ...]
    flops: int
    accuracy: float
    nll: float

    def metrics(self, split: str) -> dict[str, float]:
        """What is reported of it, with its members joined, as in `0_2`."""
        name = "_".join(map(str, self.members))
        if split == "val":
            return {f"anytime/val_nll.{name}": self.nll}
        return {
            f"anytime/accuracy.{name}": self.accuracy,
            f"anytime/nll.{name}": self.nll,
            f"anytime/flops.{name}": float(self.flops),
        }


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

    `flops` are of each member for one example; one number where members cannot run alone, and all
    of them are the only point.
    """
    points, target = [], Classes()
    run_alone = len(flops) == len(logits_MNK)
    for members in subsets(len(logits_MNK)) if run_alone else [tuple(range(len(logits_MNK)))]:
        found = target.scores(target.combined(logits_MNK[list(members)]), labels_N)
        cost = sum(flops[m] for m in members) if run_alone else sum(flops)
        points.append(OperatingPoint(members, cost, found["accuracy"], found["nll"]))
    return sorted(points, key=lambda point: (point.flops, point.members))


def nested_points(
    predictions: Sequence[tuple[tuple[int, ...], Tensor]], labels_N: Tensor, added: Sequence[int]
) -> list[OperatingPoint]:
    """The points of members that are always evaluated in one order, each on top of the last.

    `predictions` are the members that each is of and its logits (N, K), and `added` the operations
    that each member adds for one example.
    """
    points = []
    for (members, logits_NK), cost in zip(predictions, accumulate(added), strict=True):
        found = Classes().scores(logits_NK, labels_N)
        points.append(OperatingPoint(members, cost, found["accuracy"], found["nll"]))
    return points


@torch.no_grad()
def accuracies_between(
    one: nn.Module, other: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_points: int
) -> list[float]:
    """Accuracy at equally spaced points from `one` to `other`, both ends included.

    A dip along the line says that the members are in different basins (Fort et al. 2019). There are
    no valid running statistics in between, so norms use those of the batch.
    """
    data = list(batches)
    between = deepcopy(one).train()
    ends = [dict(net.named_parameters()) for net in (one, other)]
    found = []
    for i in range(num_points):
        t = i / (num_points - 1)
        for name, parameter in between.named_parameters():
            # Exact at both ends, unlike a + t (b - a).
            parameter.copy_((1 - t) * ends[0][name] + t * ends[1][name])
        num_right = sum(int((between(x).argmax(dim=1) == y).sum()) for x, y in data)
        found.append(num_right / sum(len(y) for _, y in data))
    return found
