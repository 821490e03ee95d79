"""Fixing in rounds: when each round ends, and how many weights it fixes."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

FRACTIONS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
"""Share of weights that is fixed after each of the ten published rounds."""


@dataclass(frozen=True)
class Rounds:
    """Passes at which pretraining, warm-up and each round end."""

    pretrain_end: int
    warmup_end: int
    ends: tuple[int, ...]
    """End of each round, where it fixes weights; the last is the whole budget."""

    @property
    def num_fixing(self) -> int:
        """Passes after pretraining."""
        return self.ends[-1] - self.pretrain_end


def cut(
    passes: int, *, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> Rounds:
    """Divide a budget of passes; rounds too short for a pass end where the round before does.

    Args:
        passes: the budget.
        pretrain: share of the budget before weights become Gaussians.
        warmup: share of the budget in which only deviations train.
        first_round: length of the first round relative to each other one.
        num_rounds: how many rounds share the rest.

    Example:
        >>> cut(100, pretrain=0.5, warmup=0.0, first_round=0.5, num_rounds=3)
        Rounds(pretrain_end=50, warmup_end=50, ends=(60, 80, 100))
    """
    pretrain_end = round(pretrain * passes)
    warmup_end = round((pretrain + warmup) * passes)
    others = [1.0] * (num_rounds - 1)
    lengths = list(accumulate([first_round if others else 1.0, *others]))
    rest = passes - warmup_end
    ends = [warmup_end + round(rest * length / lengths[-1]) for length in lengths]
    return Rounds(pretrain_end, warmup_end, tuple(ends))


def quota(num_weights: int, fraction: float) -> int:
    """Round a fraction of all weights up to a whole number of them.

    The fraction counts as it is written in decimal: the float 0.07 is above 7 / 100, and 0.07 * 100
    would round up to 8.
    """
    return math.ceil(Fraction(str(fraction)) * num_weights)
