"""When pretraining ends and rounds end, in passes, and how many weights each round fixes."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

FRACTIONS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
"""How much is fixed after each of the ten published rounds."""


@dataclass(frozen=True)
class Rounds:
    """The budget, cut: `[0, pretrain_end)`, `[pretrain_end, warmup_end)`, then the rounds."""

    pretrain_end: int
    warmup_end: int
    ends: tuple[int, ...]
    """Passes after which each round fixes; the last is the whole budget."""


def cut(
    passes: int, *, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> Rounds:
    """Cut a budget of passes; rounds that get none of it share their end.

    Args:
        passes: the budget.
        pretrain: its share before weights become Gaussians.
        warmup: its share in which only deviations train.
        first_round: length of the first round relative to each other one.
        num_rounds: how many rounds share the rest.
    """
    pretrain_end = round(pretrain * passes)
    warmup_end = round((pretrain + warmup) * passes)
    others = [1.0] * (num_rounds - 1)
    lengths = list(accumulate([first_round if others else 1.0, *others]))
    rest = passes - warmup_end
    ends = [warmup_end + round(rest * length / lengths[-1]) for length in lengths]
    return Rounds(pretrain_end, warmup_end, tuple(ends))


def quota(num_weights: int, fraction: float) -> int:
    """The least number of weights that is at least this fraction of all, as written in decimal."""
    return math.ceil(Fraction(str(fraction)) * num_weights)
