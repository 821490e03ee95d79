"""What differs between the replicates of an arm: the data, the training, the search.

A replicate draws everything anew, so that an interval over replicates is about the method and not
about one split of one data set (Bouthillier et al. 2021). An arm may hold some of the sources at
one seed; beside an arm that varies all, that shows how much spread each source makes.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tuneparts import seeding
from tuneparts.journal import TrialId
from tuneparts.search.segment import Await, Batch, Result, Segment

Source: TypeAlias = Literal["data", "init", "search"]
SOURCES: tuple[Source, ...] = ("data", "init", "search")
"""`data`: subsets, splits, angles, generated examples. `init`: all that a learner draws itself,
such as initial weights, the order of batches and augmentation. `search`: what an algorithm draws
from its space."""


@dataclass(frozen=True)
class ArmSeeds:
    """Which seed each source of randomness has in a replicate of one arm.

    Example:
        >>> seeds = ArmSeeds("none", varies=("init",), held=7, draws_data=True)
        >>> seeds.data(3), seeds.init(3)
        (7, 3)
    """

    arm: str
    varies: tuple[Source, ...] = SOURCES
    held: int = 0
    """Seed of the sources that do not vary."""
    is_fresh: bool = False
    """Whether its learners have another seed than those of the arm that it follows."""
    draws_data: bool = False
    """Whether the data of replicates differs at all."""

    def data(self, seed: int) -> int | None:
        """Seed of the data; None where all replicates have the same."""
        return self._of("data", seed) if self.draws_data else None

    def init(self, seed: int) -> int:
        """Seed of the learner."""
        own = self._of("init", seed)
        return seeding.derive(own, "fresh", self.arm) if self.is_fresh else own

    def search(self, seed: int) -> int:
        """Seed of the algorithm."""
        return self._of("search", seed)

    def _of(self, source: Source, seed: int) -> int:
        return seed if source in self.varies else self.held


Proposals: TypeAlias = Generator[Batch, Mapping[TrialId, Result], None]


def relabelled(proposals: Proposals, *, drawn: int, seed: int) -> Proposals:
    """What an algorithm proposes under one seed, as the trials of a replicate of another seed.

    Args:
        proposals: of the algorithm, under the seed `drawn`.
        drawn: seed by which values are drawn.
        seed: of the replicate that runs them.
    """

    def named(trial: TrialId, to: int) -> TrialId:
        return TrialId(trial.arm, to, trial.index)

    def run(segment: Segment) -> Segment:
        donor = segment.donor and named(segment.donor, seed)
        return replace(segment, trial=named(segment.trial, seed), donor=donor)

    answer: Any = None
    while True:
        try:
            batch = proposals.send(answer)
        except StopIteration:
            return
        awaits = batch.awaits
        if not isinstance(awaits, Await):
            awaits = tuple(named(trial, seed) for trial in awaits)
        stop = tuple(named(trial, seed) for trial in batch.stop)
        told = yield Batch(tuple(map(run, batch.run)), stop, awaits)
        answer = {named(trial, drawn): result for trial, result in told.items()}
