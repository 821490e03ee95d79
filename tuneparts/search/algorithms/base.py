"""What a search algorithm is, and those that decide everything before the first result.

An algorithm is a config with a generator. The generator yields a batch of segments and receives how
segments ended: by default all of them at once, so that what it does next depends on the search and
the seed, never on which worker was faster. After a crash the generator is run again against the
journal, and comes to where it was.
"""

import dataclasses
import itertools
import math
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from tuneparts.core.errors import ConfigError
from tuneparts.core.registry import Named, Registry
from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import MOST_IN_GRID, Dimension, Value

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm

Proposals: TypeAlias = Generator[Batch, Mapping[TrialId, Result], None]


@dataclass(frozen=True)
class _Cost:
    """What one replicate of an arm takes, known before anything runs."""

    trials: int
    most: int
    """Steps that are never exceeded."""
    expected: int
    """Steps, for an estimate."""
    sequential: int
    """Steps that run one after another, however many workers; the queue begins with the most."""


class Algorithm(Named):
    """Decides which trials one replicate (one seed of an arm) runs, and for how long.

    A subclass sets `is_adaptive` and defines `proposals`; its settings are fields, as in any
    config, and its number of trials is the field `num_trials`, or what `trials_per_seed` returns.
    It needs no registration. `tuneparts.testing.AlgorithmContract` tests that it keeps its
    promises.

    Example:
        >>> class FirstDraws(Algorithm):
        ...     num_trials: int
        ...     is_adaptive = False
        ...
        ...     def proposals(self, arm, seed, metric):
        ...         values = [draw(arm, seed, i) for i in range(self.num_trials)]
        ...         trials = (
        ...             whole_trial(arm, seed=seed, index=i, values=v) for i, v in enumerate(values)
        ...         )
        ...         yield Batch(tuple(trials))
        >>> FirstDraws(num_trials=3).with_trials(5).trials_per_seed({})
        5
    """

    registry = Registry(
        "algorithm",
        {
            "fixed": "tuneparts.search.algorithms.base:Fixed",
            "random": "tuneparts.search.algorithms.base:RandomSearch",
            "grid": "tuneparts.search.algorithms.base:GridSearch",
            "optuna": "tuneparts.search.algorithms.sampler:Optuna",
            "tpe": "tuneparts.search.algorithms.sampler:Tpe",
            "halving": "tuneparts.search.algorithms.halving:SuccessiveHalving",
            "hyperband": "tuneparts.search.algorithms.halving:Hyperband",
            "asha": "tuneparts.search.algorithms.halving:Asha",
            "pruned": "tuneparts.search.algorithms.sampler:Pruned",
            "pbt": "tuneparts.search.algorithms.pbt:Pbt",
        },
    )

    is_adaptive: ClassVar[bool]
    """Whether results decide what is tried next; then trials are not draws from one distribution,
    and figures that resample them leave the arm out."""
    takes_points: ClassVar[bool] = False
    """Whether its first trials are at the points of its arm, which is so where `draw` makes them.
    If not, an arm with points is refused."""
    keeps_first_trials: ClassVar[bool] = False
    """Whether with more trials the first ones are the same, and run to the same steps. Then
    `tuneparts extend` can add trials to a run."""
    replaces_failed: ClassVar[bool] = False
    """Whether a trial whose round failed may go on in the next batch, from the state of a donor."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not isinstance(getattr(cls, "is_adaptive", None), bool):
            words = "say whether results decide what is tried next: True or False"
            raise ConfigError(f"`is_adaptive` of {cls.__name__}: {words}.")

    @abstractmethod
    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        """Yield batches of segments, and receive for each the results that it `awaits`.

        What is yielded may depend on the arguments, the fields and the results received so far,
        and on nothing else: no clock, no global random numbers (`core.seeding` has streams).
        Unless its timing is free, it does not depend on the order in which results come either.
        The generator may end while trials run; they run to the end of their segments.

        `draw`, `whole_trial` and `_stretch` make segments. A trial whose result has a failure has
        ended, unless `replaces_failed` and the next batch goes on with it from a donor. Any other
        must be run to its budget, or named in the `stop` of a later batch.
        `Result.score` reads the metric from a result.
        """

    def front_proposals(self, arm: "Arm", seed: int, objectives: Sequence[Metric]) -> Proposals:
        """Like `proposals`, for a search with several objectives; by default by the first alone."""
        return self.proposals(arm, seed, objectives[0])

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        """Number of trials in one replicate; by default the field `num_trials`."""
        count: int = getattr(self, "num_trials")  # noqa: B009 - a field of subclasses
        return count

    def cost(self, arm: "Arm") -> _Cost:
        """What one replicate takes; by default all trials in full, in a chain if adaptive."""
        trials, steps = self.trials_per_seed(arm.space), arm.config.steps
        chain = trials if self.is_adaptive else 1
        return _Cost(trials, trials * steps, trials * steps, chain * steps)

    def check(self, arm: "Arm") -> None:
        """Refuse an arm that this algorithm cannot run, with a ValueError; by default none."""

    @property
    def is_free(self) -> bool:
        """Whether it goes by the order in which trials end, so that a rerun may differ."""
        return getattr(self, "timing", "exact") == "free"

    def with_trials(self, num_trials: int) -> Self:
        """What `--trials` makes of it; without a field `num_trials` it stays as it is."""
        if "num_trials" not in type(self).model_fields:
            return self
        return self.replaced({"num_trials": num_trials})


class _Timed(Algorithm):
    """An algorithm whose decisions can wait for those before them, or be made at once."""

    is_adaptive = True

    timing: Literal["exact", "free"] = "exact"
    """`exact`: decisions do not depend on which trial ends first, so a rerun gives the same trials.
    `free`: decisions are made as trials end. Their order is in the journal, so a resumed search is
    the same, but a rerun may differ. Workers wait less."""


class Fixed(Algorithm):
    """One trial per seed, at the arm's own config."""

    is_adaptive = False
    keeps_first_trials = True

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return 1

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch((whole_trial(arm, seed=seed, index=0, values={}),))


class RandomSearch(Algorithm):
    """Trials at independent draws from the space.

    Example:
        >>> RandomSearch(20).num_trials
        20
    """

    is_adaptive = False
    takes_points = True
    keeps_first_trials = True

    num_trials: int = Field(gt=0)

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(**{"num_trials": num_trials, **settings})

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch(tuple(_drawn_trials(arm, seed, range(self.num_trials))))


class GridSearch(Algorithm):
    """A trial for every combination of the space's values that the constraint allows."""

    is_adaptive = False
    keeps_first_trials = True

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:
        return math.prod(len(dim.grid() or ()) for dim in space.values())

    def cost(self, arm: "Arm") -> _Cost:
        if arm.constraint is None:
            return super().cost(arm)
        trials, steps = len(self._combinations(arm)), arm.config.steps
        return _Cost(trials, trials * steps, trials * steps, steps)

    def check(self, arm: "Arm") -> None:
        loose = [path for path, dim in arm.space.items() if not dim.grid()]
        if loose:
            raise ValueError(
                f"{loose}: grid search needs a Choice for each dimension, or a number with a "
                f"`step` and at most {MOST_IN_GRID:,} steps"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        found = enumerate(self._combinations(arm))
        yield Batch(tuple(whole_trial(arm, seed=seed, index=i, values=v) for i, v in found))

    def _combinations(self, arm: "Arm") -> list[dict[str, Value]]:
        grids = itertools.product(*(dim.grid() or () for dim in arm.space.values()))
        return list(filter(arm.allows, (dict(zip(arm.space, g, strict=True)) for g in grids)))


def draw(arm: "Arm", seed: int, index: int) -> dict[str, Value]:
    """Draw the values of one random trial; the first trials are at the points of the arm."""
    rng = numpy_generator(seed, "space", arm.name, index)
    return arm.sample(rng, arm.points[index] if index < len(arm.points) else {})


def _drawn_trials(arm: "Arm", seed: int, indices: range) -> list[Segment]:
    """Make random trials, each from its start to its end."""
    return [whole_trial(arm, seed=seed, index=i, values=draw(arm, seed, i)) for i in indices]


def whole_trial(arm: "Arm", *, seed: int, index: int, values: Mapping[str, Any]) -> Segment:
    """Make the segment that runs a whole trial of an arm, at values by their path."""
    if not arm.allows(values):
        raise ConfigError(
            f"`{arm.algorithm.kind}` proposed {dict(values)!r:.200}, which the constraint of "
            f"`{arm.name}` does not allow. Let it draw again where `arm.allows` says no."
        )
    config, changes = arm.config_at(values), arm.of_data(values)
    return Segment(
        trial=TrialId(arm.name, seed, index),
        config=config.model_dump(mode="json") | ({"data": changes} if changes else {}),
        until=config.steps,
    )


def _stretch(
    whole: Segment, *, number: int, bounds: tuple[int, int], donor: TrialId | None = None
) -> Segment:
    """Cut a round out of a whole trial, between two numbers of steps, from a donor's state."""
    return dataclasses.replace(whole, round=number, start=bounds[0], until=bounds[1], donor=donor)
