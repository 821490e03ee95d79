"""What a search algorithm is, and those that decide everything before the first result.

An algorithm is a config with a generator, which yields batches of segments and receives how they
ended. After a crash the generator is run again against the journal, and comes to where it was.
"""

import dataclasses
import itertools
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from tuneparts.core.errors import ConfigError
from tuneparts.core.registry import Named, Registry
from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.search.events import TrialId
from tuneparts.search.segment import ALL, Batch, Result, Segment, _Await
from tuneparts.search.space import MOST_IN_GRID, Dimension, Value

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.arm import Arm

Proposals: TypeAlias = Generator[Batch, Mapping[TrialId, Result], None]


@dataclass(frozen=True)
class _Cost:
    """What one seed of an arm takes, known before anything runs."""

    trials: int
    most: int
    """Steps that are never exceeded."""
    expected: int
    """Steps, for an estimate."""
    sequential: int
    """Steps that run one after another, however many workers; the queue begins with the most."""


class Algorithm(Named):
    """Decides which trials an arm runs under one seed, and for how long.

    A subclass sets `is_adaptive` and defines `proposals`; its settings are fields, as in any
    config, and its number of trials is the field `num_trials`, or what `trials_per_seed` returns.
    It needs no registration. `tuneparts.testing.AlgorithmContract` tests it.
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
        Unless it is asynchronous, it does not depend on the order in which results come either.
        The generator may end while trials run; they run to the end of their segments.

        `draw`, `whole_trial` and `_stretch` make segments. A trial whose result has a failure has
        ended, unless `replaces_failed` and the next batch goes on with it from a donor. Any other
        must be run to its budget, or named in the `stop` of a later batch.
        `Result.score` reads the metric from a result.
        """

    def front_proposals(self, arm: "Arm", seed: int, objectives: Sequence[Metric]) -> Proposals:
        """Like `proposals`, for a search with several objectives; by default by the first alone."""
        return self.proposals(arm, seed, objectives[0])

    def _started(self, arm: "Arm", seed: int, objectives: Sequence[Metric]) -> Proposals:
        proposals: object = (
            self.front_proposals(arm, seed, objectives)
            if len(objectives) > 1
            else self.proposals(arm, seed, objectives[0])
        )
        if not isinstance(proposals, Generator):
            raise ConfigError(
                f"`proposals` of `{self.kind}` returned {proposals!r:.100}, not a generator. "
                "Write `yield Batch(...)` in it."
            )
        return proposals

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        """Number of trials of one seed; by default the field `num_trials`."""
        count: int = getattr(self, "num_trials")  # noqa: B009 - a field of subclasses
        return count

    def cost(self, arm: "Arm") -> _Cost:
        """What one seed takes; by default all trials in full, in a chain if adaptive."""
        trials, steps = self.trials_per_seed(arm.space), arm.config.steps
        chain = trials if self.is_adaptive else 1
        return _Cost(trials, trials * steps, trials * steps, chain * steps)

    def check(self, arm: "Arm") -> None:
        """Refuse an arm that this algorithm cannot run, with a ValueError; by default none."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether it goes by the order in which trials end, so that a rerun may differ."""
        return getattr(self, "timing", "deterministic") == "asynchronous"

    def with_trials(self, num_trials: int) -> Self:
        if "num_trials" not in type(self).model_fields:
            return self
        return self.replaced({"num_trials": num_trials})


class _Timed(Algorithm):
    """An algorithm whose decisions can wait for those before them, or be made at once."""

    is_adaptive = True

    timing: Literal["deterministic", "asynchronous"] = "deterministic"
    """`deterministic`: decisions do not depend on which trial ends first, so a rerun gives the same
    trials. `asynchronous`: decisions are made as trials end. Their order is in the journal, so a
    resumed search is the same, but a rerun may differ. Workers wait less."""


class Fixed(Algorithm):
    """One trial per seed, at the arm's own config."""

    is_adaptive = False
    keeps_first_trials = True

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return 1

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        yield Batch((whole_trial(arm, seed=seed, index=0, values={}),))


class RandomSearch(Algorithm):
    """Trials at independent draws from the space."""

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
                f"arms['{arm.name}'].space['{loose[0]}']: grid search needs a Choice, or a number "
                f"with a `step` and at most {MOST_IN_GRID:,} values"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:  # noqa: ARG002
        found = enumerate(self._combinations(arm))
        yield Batch(tuple(whole_trial(arm, seed=seed, index=i, values=v) for i, v in found))

    def _combinations(self, arm: "Arm") -> list[dict[str, Value]]:
        grids = itertools.product(*(dim.grid() or () for dim in arm.space.values()))
        return list(filter(arm.allows, (dict(zip(arm.space, g, strict=True)) for g in grids)))


def _checked(
    batch: object, arm: "Arm", seed: int, running: Collection[TrialId], ended: Collection[TrialId]
) -> Batch:
    """What an algorithm yielded, if it may.

    `running` are its trials that run, `ended` those of whose end it has not been told.
    """
    owner = arm.algorithm.kind
    if not isinstance(batch, Batch):
        raise ConfigError(f"an algorithm yields a Batch, but `{owner}` yielded {batch!r:.100}.")
    trials = [segment.trial for segment in batch.run]
    strays = [trial for trial in trials if (trial.arm, trial.seed) != (arm.name, seed)]
    doubled = [trial for trial, count in Counter(trials).items() if count > 1]
    if strays or doubled:
        raise ConfigError(
            f"`{owner}` yielded {', '.join(map(str, strays or doubled))}: a batch runs trials "
            f"of its own arm `{arm.name}` and seed {seed}, each once."
        )
    busy = [trial for trial in (*trials, *batch.stop) if trial in running or trial in ended]
    if busy:
        raise ConfigError(f"`{owner}` did not wait for {', '.join(map(str, busy))}.")
    under_way = {*trials, *running, *ended}
    awaited = () if isinstance(batch.awaits, _Await) else batch.awaits
    has_none = (batch.awaits is not ALL and not under_way) or batch.awaits == ()
    idle = [str(trial) for trial in awaited if trial not in under_way]
    if has_none or idle:
        named = ", ".join(idle) or "none"
        raise ConfigError(f"an algorithm awaits trials that run, but `{owner}` awaits {named}.")
    return batch


def draw(arm: "Arm", seed: int, index: int) -> dict[str, Value]:
    """Draw the values of one random trial; the first trials are at the points of the arm."""
    rng = numpy_generator(seed, "space", arm.name, index)
    return arm.sample(rng, arm.points[index] if index < len(arm.points) else {})


def _drawn_trials(arm: "Arm", seed: int, indices: range) -> list[Segment]:
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
