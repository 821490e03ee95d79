"""Any sampler of Optuna as a search algorithm (Akiba et al. 2019), and the Parzen estimator.

Optuna is asked define-by-run: conditional dimensions are parameters that exist only in trials where
their option was chosen, which its samplers are made for. Normal numbers are asked for by their
quantile.
"""

import dataclasses
import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.core.seeding import derive, numpy_generator
from tuneparts.search import draws
from tuneparts.search.algorithms.base import Cost, Proposals, Timed, whole_trial
from tuneparts.search.segment import ANY, Batch, Result
from tuneparts.search.space import Dimension, Value

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

    from tuneparts.search.arm import Arm
    from tuneparts.search.events import TrialId

SAMPLERS = {
    "random": "RandomSampler",
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
    "nsgaiii": "NSGAIIISampler",
}
"""Short name -> class in `optuna.samplers`."""
PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "patient": "PatientPruner",
    "threshold": "ThresholdPruner",
    "wilcoxon": "WilcoxonPruner",
}
"""Short name -> class in `optuna.pruners`. Its halving and Hyperband are `Asha` and `Hyperband`
here, which decide the same whichever trial ends first."""
_OURS: Mapping[str, Mapping[str, Any]] = {
    "tpe": {"multivariate": True, "constant_liar": True},
    "cmaes": {"warn_independent_sampling": False},
    "gp": {"warn_independent_sampling": False},
    "qmc": {"scramble": True, "warn_independent_sampling": False},
}
"""Options where our default is not Optuna's: dimensions of TPE belong together, and what runs
counts; without scrambling QMC would try the same points under every seed."""
_USUAL_WINDOW = 8
"""Trials under way where neither the search nor the run says how many."""
_WIDER = 2.5
"""Width of a window over that of the machine. With durations that span a factor of 10, a search
then takes 1.07 times as long as with free timing on 8 slots and 1.2 times on 32; with a window of
the machine's own width 1.6 and 2.1 times (simulated, 8 trials a slot). What it costs in what is
found is in docs/decisions/0032."""


_MOST_ASKED = 20
"""Proposals of a sampler that the constraint may refuse in a row; then an allowed one is drawn."""


class Sampled(Timed):
    """Trials that a sampler of Optuna proposes, a sliding window of them at a time.

    With exact timing, trial n is asked for once trials 0 to n - window have been told, in their
    order. So the order in which trials end changes nothing, and no trial waits for a whole batch.
    With free timing a trial is asked for as soon as any other ends.
    """

    takes_points = True
    keeps_first_trials = True  # a trial is asked for with what those before it found, however many

    num_trials: int = Field(gt=0)
    window: int | None = Field(default=None, gt=0)
    """Most trials that are asked for and not told. None: as many as the machine or cluster can run
    at once, times 2.5 with exact timing, as it is when a run begins; the run keeps the number, for
    it changes what is found."""

    @abstractmethod
    def make_sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        """Make the sampler of one replicate, seeded by its arguments alone."""

    def cost(self, arm: "Arm") -> Cost:
        rounds = math.ceil(self.num_trials / (self.window or _USUAL_WINDOW))
        return dataclasses.replace(super().cost(arm), sequential=rounds * arm.config.passes)

    def for_width(self, width: int) -> Self:
        """What it is on a machine or cluster that runs so many of its trials at once.

        Asked once, when a run begins.
        """
        if self.window is not None:
            return self
        # Workers that wait for the oldest trial need others to run, but trials that are asked for
        # before anything is told are random: some more than the width, a third of all at most.
        wide = max(width, min(math.ceil(_WIDER * width), self.num_trials // 3))
        return self.replaced({"window": width if self.is_free or width == 1 else wide})

    def check(self, arm: "Arm") -> None:
        # Asked of the class, because to call `distribution` would import Optuna.
        missing = [
            path
            for path, dim in arm.space.items()
            if any(type(part).distribution is Dimension.distribution for part in dim.parts())
        ]
        if missing:
            raise ValueError(
                f"Optuna needs a dimension's `distribution`, but {missing} of `{arm.name}` have "
                "none. Define it in their class, or take another algorithm."
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        return self.front_proposals(arm, seed, [metric])

    def front_proposals(self, arm: "Arm", seed: int, objectives: Sequence[Metric]) -> Proposals:
        import optuna  # half a second that other algorithms need not pay

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            directions=[
                "maximize" if one.direction is Direction.UP else "minimize" for one in objectives
            ],
            sampler=self.make_sampler(arm, seed),
        )
        asking = _Asking(study, arm, seed, objectives)
        window = self.window or _USUAL_WINDOW
        asked: dict[TrialId, Trial] = {}
        """Trials whose results Optuna does not have yet, the oldest first."""
        run = []
        for index in range(self.num_trials):
            trial, values = asking.ask()
            run.append(whole_trial(arm, seed=seed, index=index, values=values))
            asked[run[-1].trial] = trial
            if len(asked) < window or index + 1 == self.num_trials:
                continue
            oldest = (next(iter(asked)),)
            results = yield Batch(tuple(run), awaits=ANY if self.is_free else oldest)
            run = []
            for one in sorted(results):
                asking.tell(asked.pop(one), results[one])
        yield Batch(tuple(run))


class Optuna(Sampled):
    """A sampler of Optuna by its name, with its options.

    Example:
        >>> gp = Optuna(sampler="gp", num_trials=50, options={"n_startup_trials": 8})
        >>> gp.model_dump(exclude_defaults=True)["sampler"]
        'gp'
    """

    sampler: str = "tpe"
    """`random`, `tpe`, `gp` (a Gaussian process), `cmaes`, `qmc` (a scrambled Sobol sequence),
    `nsgaii`, `nsgaiii`; or the import path `package.module:name` of a sampler's class, or of a
    function that makes one. It is called with the options, and with a `seed` if it takes one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the sampler, under the names that Optuna gives them. TPE is multivariate and has
    a constant liar unless they say otherwise."""

    @model_validator(mode="after")
    def _check_sampler(self) -> Self:
        if self.options or ":" in self.sampler or self.sampler not in SAMPLERS:
            _maker("sampler", self.sampler, self.options)
        return self

    def check(self, arm: "Arm") -> None:
        super().check(arm)
        if self.options or ":" in self.sampler:
            self.make_sampler(arm, 0)  # options with values that it does not take are refused now

    def make_sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        own = derive(seed, self.sampler, arm.name) % 2**32
        ours = _OURS.get(self.sampler, {})
        made: BaseSampler = optuna_part("sampler", self.sampler, self.options, seed=own, ours=ours)
        return made


class OptunaSearch(Sampled):
    """A sampler of Optuna that a subclass makes, in `sampler`."""

    @abstractmethod
    def sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        """Make the sampler of one replicate, seeded by its arguments alone."""

    def make_sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        return self.sampler(arm, seed)


class Tpe(OptunaSearch):
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011).

    It is multivariate and has a constant liar for trials that run.
    """

    num_startup: int = Field(default=10, ge=1)
    """Random trials before the estimator takes over."""

    def sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        from optuna.samplers import TPESampler

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls both options experimental
            return TPESampler(
                n_startup_trials=self.num_startup,
                seed=derive(seed, "tpe", arm.name) % 2**32,
                **_OURS["tpe"],
            )


class _Asking:
    """A study of Optuna about the space of an arm; its points are enqueued first."""

    def __init__(self, study: "Study", arm: "Arm", seed: int, metrics: Sequence[Metric]) -> None:
        self.study = study
        self._arm = arm
        self._seed = seed
        self._metrics = metrics
        for point in arm.points:
            study.enqueue_trial({name: value for name, (value, _) in parameters(arm.space, point)})

    def ask(self) -> tuple["Trial", dict[str, Value]]:
        """Ask for the values of the next trial; what the constraint does not allow is skipped."""
        from optuna.trial import TrialState

        for _ in range(_MOST_ASKED):
            trial, values = self._asked()
            if draws.allows(self._arm, values):
                return trial, values
            self.study.tell(trial, state=TrialState.FAIL)
        rng = numpy_generator(self._seed, "allowed", self._arm.name, len(self.study.trials))
        drawn = draws.sample(self._arm, rng)
        self.study.enqueue_trial({n: value for n, (value, _) in parameters(self._arm.space, drawn)})
        trial, values = self._asked()
        if not draws.allows(self._arm, values):
            raise ConfigError(
                f"an allowed draw of `{self._arm.name}` is the same in Optuna, but {drawn} became "
                f"{values}. Let `decoded` of its dimensions undo `encoded`."
            )
        return trial, values

    def tell(self, trial: "Trial", result: Result) -> None:
        """Give the study the scores of a trial; one without finite scores has failed."""
        from optuna.trial import TrialState

        scores = result.scores(self._metrics)
        if any(map(math.isnan, scores)):
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, scores if len(scores) > 1 else scores[0])

    def _asked(self) -> tuple["Trial", dict[str, Value]]:
        def ask(name: str, distribution: "BaseDistribution") -> Any:
            return suggested(trial, name, distribution)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about options that Optuna calls experimental
            trial = self.study.ask()
            values = {path: dim.suggest(path, ask) for path, dim in self._arm.space.items()}
        return trial, values


def suggested(trial: "Trial", name: str, distribution: "BaseDistribution") -> Any:
    """Draw a parameter from a distribution, within a trial."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
    raise ConfigError(
        f"a `distribution` is one of Optuna's float, int or categorical ones, but that of `{name}` "
        f"is {distribution!r:.100}."
    )


def parameters(
    space: Mapping[str, Dimension], values: Mapping[str, Value]
) -> Iterator[tuple[str, tuple[Any, "BaseDistribution"]]]:
    """What values are in Optuna: name -> parameter and its distribution."""
    for path, value in values.items():
        for leaf in space[path].leaves(path, value):
            parameter = leaf.dimension.encoded(leaf.value)
            yield leaf.name, (parameter, leaf.dimension.distribution())


def optuna_part(
    noun: Literal["sampler", "pruner"],
    name: str,
    options: Mapping[str, Any],
    *,
    seed: int | None = None,
    ours: Mapping[str, Any] | None = None,
) -> Any:
    """Make a sampler or pruner of Optuna, by its short name or import path.

    A seed is given to those that take one; `ours` are options where our default is not Optuna's.
    """
    import optuna

    maker = _maker(noun, name, options)
    given = {**(ours or {}), **options}
    if seed is not None and "seed" in inspect.signature(maker).parameters:
        given.setdefault("seed", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls half of its options experimental
        try:
            made = maker(**given)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"options = {dict(options)}: the {noun} `{name}` says: {error}"
            ) from error
    base = optuna.samplers.BaseSampler if noun == "sampler" else optuna.pruners.BasePruner
    if not isinstance(made, base):
        raise ValueError(f"`{name}` made {made!r:.100}, which is no {base.__name__} of Optuna")
    return made


def _maker(noun: str, name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Find what makes a sampler or pruner, and refuse an option that it does not have."""
    known = SAMPLERS if noun == "sampler" else PRUNERS
    if name not in known and ":" not in name:
        raise UnknownNameError(noun, name, known)
    import optuna

    if name in known:
        maker: Any = getattr(getattr(optuna, f"{noun}s"), known[name])
    else:
        maker = import_path.find(name)
    if not callable(maker):
        raise ValueError(
            f"`{name}` leads to {maker!r:.100}, but a {noun} is made by a class or a function"
        )
    taken = inspect.signature(maker).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        return maker  # type: ignore[no-any-return]
    for option in options:
        if option == "seed":
            raise ValueError(
                f"options['seed']: the seed of `{name}` is that of its replicate; leave it out"
            )
        if option not in taken:
            raise UnknownNameError(
                f"option of the {noun} `{name}`", option, [one for one in taken if one != "seed"]
            )
    return maker  # type: ignore[no-any-return]
