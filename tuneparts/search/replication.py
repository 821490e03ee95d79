"""What differs between the replicates of an arm: the data, the training, the search.

A replicate draws everything anew, so that an interval over replicates is about the method and not
about one split of one data set (Bouthillier et al. 2021).
"""

from dataclasses import dataclass

from tuneparts.core import seeding


@dataclass(frozen=True)
class ArmSeeds:
    """Which seeds data and training have in a replicate of one arm.

    Example:
        >>> seeds = ArmSeeds("none", draws_data=True)
        >>> seeds.data(3), seeds.init(3)
        (3, 3)
    """

    arm: str
    is_fresh: bool = False
    """Whether its learners have another seed than those of the arm that it follows."""
    draws_data: bool = False
    """Whether the data of replicates differs at all."""

    def data(self, seed: int) -> int | None:
        """Seed of the data; None where all replicates have the same."""
        return seed if self.draws_data else None

    def init(self, seed: int) -> int:
        """Seed of the learner."""
        return seeding.derive(seed, "fresh", self.arm) if self.is_fresh else seed
