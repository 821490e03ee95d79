"""Samplers and pruners of Optuna as search algorithms (Akiba et al. 2019).

Optuna is asked define-by-run: conditional dimensions are parameters that exist only in trials where
their option was chosen.
"""

import dataclasses
import functools
import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.core.seeding import derive, numpy_generator
from tuneparts.search.algorithms.base import Proposals, _Cost, _drawn_trials, _Timed, whole_trial
from tuneparts.search.algorithms.halving import _judged
from tuneparts.search.arm import Arm
from tuneparts.search.events import TrialId
from tuneparts.search.segment import ANY, Batch
from tuneparts.search.space import Dimension, Value

if TYPE_CHECKING:  # half a second that other algorithms need not pay
    import optuna
    from optuna.trial import FrozenTrial, TrialState

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
    name: f"{name.capitalize()}Pruner"
    for name in ("median", "percentile", "patient", "threshold", "wilcoxon")
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
"""Width of a window over that of the machine; what it saves and costs is in docs/decisions/0032."""
_MOST_ASKED = 20
"""Proposals of a sampler that the constraint may refuse in a row; then an allowed one is drawn."""


class Sampled(_Timed):
    """Trials that a sampler of Optuna proposes, a sliding window of them at a time.

    Trial n is asked for once Optuna has the results of trials 0 to n - window, in their order. So
    the order in which trials end changes nothing, and no trial waits for a whole batch. With
    asynchronous timing a trial is asked for as soon as any other ends.
    """

    takes_points = True
    keeps_first_trials = True  # a trial is asked for with what those before it found, however many

    num_trials: int = Field(gt=0)
    window: int | None = Field(default=None, gt=0)
    """Most trials that run or wait. None: as many as the machine or cluster can run at once, times
    2.5 with deterministic timing, as it is when a run begins; the run keeps the number, for it
    changes what is found."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(**{"num_trials": num_trials, **settings})

    @abstractmethod
    def make_sampler(self, arm: Arm, seed: int) -> "optuna.samplers.BaseSampler":
        """Make the sampler of one seed, from its arguments alone."""

    def cost(self, arm: Arm) -> _Cost:
        rounds = math.ceil(self.num_trials / (self.window or _USUAL_WINDOW))
        return dataclasses.replace(super().cost(arm), sequential=rounds * arm.config.steps)

    def for_width(self, width: int) -> Self:
        """What it is where so many of its trials run at once; asked once, when a run begins."""
        if self.window is not None:
            return self
        # Workers that wait for the oldest trial need others to run, but trials that are asked for
        # before any result is known are random: some more than the width, a third of all at most.
        wide = max(width, min(math.ceil(_WIDER * width), self.num_trials // 3))
        return self.replaced({"window": width if self.is_asynchronous or width == 1 else wide})

    def check(self, arm: Arm) -> None:
        for path, dim in arm.space.items():
            # Asked of the class, because to call `distribution` would import Optuna.
            if any(type(part).distribution is Dimension.distribution for part in dim.parts()):
                raise ValueError(
                    f"arms['{arm.name}'].space['{path}']: {type(dim).__name__} has no "
                    "`distribution` for Optuna. Define it, or take another algorithm."
                )

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> Proposals:
        return self.front_proposals(arm, seed, [metric])

    def front_proposals(self, arm: Arm, seed: int, objectives: Sequence[Metric]) -> Proposals:
        from optuna.trial import TrialState

        study = _study(objectives, self.make_sampler(arm, seed))
        for point in arm.points:
            study.enqueue_trial(_parameters(arm.space, point))
        window = self.window or _USUAL_WINDOW
        asked: dict[TrialId, optuna.Trial] = {}
        """Trials whose results Optuna does not have yet, the oldest first."""
        run = []
        for index in range(self.num_trials):
            trial, values = _asked(study, arm, seed)
            run.append(whole_trial(arm, seed=seed, index=index, values=values))
            asked[run[-1].trial] = trial
            if len(asked) < window or index + 1 == self.num_trials:
                continue
            oldest = (next(iter(asked)),)
            results = yield Batch(tuple(run), awaits=ANY if self.is_asynchronous else oldest)
            run = []
            for one in sorted(results):
                scores = results[one].scores(objectives)
                failed = TrialState.FAIL if any(map(math.isnan, scores)) else None
                study.tell(asked.pop(one), None if failed else scores, failed)
        yield Batch(tuple(run))


class Optuna(Sampled):
    """A sampler of Optuna by its name, with its options."""

    sampler: str = "tpe"
    """`random`, `tpe`, `gp` (a Gaussian process), `cmaes`, `qmc` (a scrambled Sobol sequence),
    `nsgaii`, `nsgaiii`; or the import path `package.module:name` of a sampler's class, or of a
    function that makes one. It is called with the options, and with a `seed` if it takes one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the sampler, under the names that Optuna gives them. TPE is multivariate and has
    a constant liar unless they say otherwise."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(num_trials, **settings)

    def check(self, arm: Arm) -> None:
        super().check(arm)
        if self.options or self.sampler not in SAMPLERS:  # else there is no need for Optuna yet
            self.make_sampler(arm, 0)

    def make_sampler(self, arm: Arm, seed: int) -> "optuna.samplers.BaseSampler":
        own = derive(seed, self.sampler, arm.name) % 2**32
        return _made("sampler", self.sampler, self.options, own)


class OptunaSearch(Sampled):
    """A sampler of Optuna that a subclass makes, in `sampler`."""

    @abstractmethod
    def sampler(self, arm: Arm, seed: int) -> "optuna.samplers.BaseSampler":
        """Make the sampler of one seed, from its arguments alone."""

    def make_sampler(self, arm: Arm, seed: int) -> "optuna.samplers.BaseSampler":
        return self.sampler(arm, seed)


class Tpe(OptunaSearch):
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011).

    It is multivariate and has a constant liar for trials that run.
    """

    num_startup: int = Field(default=10, ge=1)
    """Random trials before the estimator takes over."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(**{"num_trials": num_trials, **settings})

    def sampler(self, arm: Arm, seed: int) -> "optuna.samplers.BaseSampler":
        own, options = derive(seed, "tpe", arm.name) % 2**32, {"n_startup_trials": self.num_startup}
        return _made("sampler", "tpe", options, own)


class Pruned(_Timed):
    """Random trials that a pruner of Optuna judges every so many steps.

    At each point a pruner sees a study of Optuna whose trials last that long: those that were
    judged there before are complete, those that were stopped earlier are pruned. Trials are judged
    in their order, each as soon as those before it have been judged at the same point, and never
    wait for one to end; with asynchronous timing in the order in which they arrive.
    """

    takes_points = True
    keeps_first_trials = True  # a trial is judged against those before it, however many come

    num_trials: int = Field(gt=0)
    every: int = Field(gt=0)
    """Steps from one judgement to the next; they are the steps of Optuna too."""
    pruner: str = "median"
    """`median`, `percentile`, `patient`, `threshold`, `wilcoxon`; or the import path
    `package.module:name` of a pruner's class, or of a function that makes one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the pruner, under the names that Optuna gives them: `n_startup_trials`,
    `n_warmup_steps`, `percentile`."""

    def __init__(self, num_trials: int, **settings: Any) -> None:
        super().__init__(**{"num_trials": num_trials, **settings})

    def cost(self, arm: Arm) -> _Cost:
        return dataclasses.replace(super().cost(arm), sequential=arm.config.steps)

    def check(self, arm: Arm) -> None:
        if self.every % arm.config.interval:
            raise ValueError(
                f"arms['{arm.name}'].algorithm.every = {self.every}: trials are judged between "
                f"intervals, so it must be a multiple of `interval` = {arm.config.interval}"
            )
        if self.options or self.pruner != "median":  # which needs no look into Optuna
            _made("pruner", self.pruner, self.options)

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> Proposals:
        trials = _drawn_trials(arm, seed, range(self.num_trials))
        levels = [*range(self.every, arm.config.steps, self.every), arm.config.steps]
        last: dict[int, FrozenTrial] = {}
        points = [_Point(self, levels[:place], metric, last) for place in range(1, len(levels))]
        yield from _judged(trials, levels, points, metric, is_asynchronous=self.is_asynchronous)


class _Point:
    """Judges the trials that arrive at one number of steps, by a pruner and its own study.

    `steps` are the points up to this one; `last` has trials by index as they were last judged.
    """

    def __init__(
        self, rule: Pruned, steps: Sequence[int], metric: Metric, last: "dict[int, FrozenTrial]"
    ) -> None:
        self._pruner = _made("pruner", rule.pruner, rule.options)
        self._is_asynchronous = rule.is_asynchronous
        self._sign = 1.0 if metric.direction is Direction.UP else -1.0
        self._study, self._steps, self._last = _study([metric]), steps, last

    def __call__(self, rewards: Sequence[float], index: int) -> bool:
        from optuna.trial import TrialState

        if not self._is_asynchronous:  # those between ended before this point
            for number in range(len(self._trials()), index):
                before = self._last.get(number)
                state = TrialState.PRUNED if before else TrialState.FAIL
                self._add(state, before.intermediate_values if before else {}, before)
        values = {n: self._sign * reward for n, reward in zip(self._steps, rewards, strict=True)}
        trial = self._add(TrialState.RUNNING, values, self._last.get(index))
        goes_on = not self._pruner.prune(self._study, trial)
        self._study.tell(trial.number, values[self._steps[-1]])
        self._last[index] = self._trials()[trial.number]
        return goes_on

    def _trials(self) -> "list[FrozenTrial]":
        found: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        return found

    def _add(
        self, state: "TrialState", values: dict[int, float], before: "FrozenTrial | None"
    ) -> "FrozenTrial":
        from optuna.trial import create_trial

        notes = before.system_attrs if before else {}
        self._study.add_trial(
            create_trial(state=state, intermediate_values=values, system_attrs=notes)
        )
        return self._trials()[-1]


def _study(
    metrics: Sequence[Metric], sampler: "optuna.samplers.BaseSampler | None" = None
) -> "optuna.Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    directions = ["maximize" if one.direction is Direction.UP else "minimize" for one in metrics]
    # Optuna's Hyperband draws brackets from the name, which is random unless it is given.
    return optuna.create_study(directions=directions, sampler=sampler, study_name="pruned")


def _asked(study: "optuna.Study", arm: Arm, seed: int) -> tuple["optuna.Trial", dict[str, Value]]:
    """Ask for the next trial and its values; what the constraint does not allow is skipped."""
    from optuna.trial import TrialState

    for attempt in range(_MOST_ASKED + 1):
        if attempt == _MOST_ASKED:
            rng = numpy_generator(seed, "allowed", arm.name, len(study.trials))
            study.enqueue_trial(_parameters(arm.space, arm.sample(rng)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about options that Optuna calls experimental
            trial = study.ask()
            ask = functools.partial(_suggested, trial)
            values = {path: dim.suggest(path, ask) for path, dim in arm.space.items()}
        if attempt == _MOST_ASKED or arm.allows(values):
            break
        study.tell(trial, state=TrialState.FAIL)
    return trial, values


def _suggested(
    trial: "optuna.Trial", name: str, distribution: "optuna.distributions.BaseDistribution"
) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntDistribution(low=low, high=high, log=log, step=step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
    raise ConfigError(
        f"`distribution` of `{name}` is {distribution!r:.100}, not one of Optuna's float, int or "
        "categorical ones."
    )


def _parameters(space: Mapping[str, Dimension], values: Mapping[str, Value]) -> dict[str, Any]:
    """What values are in Optuna: name -> parameter."""
    leaves = (leaf for path, value in values.items() for leaf in space[path].leaves(path, value))
    return {name: dim.encoded(value) for name, dim, value in leaves}


def _made(
    noun: Literal["sampler", "pruner"],
    name: str,
    options: Mapping[str, Any],
    seed: int | None = None,
) -> Any:
    """Make a sampler or pruner of Optuna by its short name or import path, seeded if it can be."""
    known = SAMPLERS if noun == "sampler" else PRUNERS
    if name not in known and ":" not in name:
        raise UnknownNameError(noun, name, known)
    if "seed" in options:
        raise ValueError(f"options['seed']: `{name}` gets the seed of the search; leave it out")
    import optuna

    own: Any = getattr(optuna, f"{noun}s")
    maker: Any = getattr(own, known[name]) if name in known else import_path.find(name)
    given = {**_OURS.get(name, {}), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls half of its options experimental
        try:
            if seed is not None and "seed" in inspect.signature(maker).parameters:
                given["seed"] = seed
            made = maker(**given)
        except (TypeError, ValueError) as error:
            words = f"options = {dict(options)}: the {noun} `{name}` says: {error}"
            raise ValueError(words) from error
    base = own.BaseSampler if noun == "sampler" else own.BasePruner
    if not isinstance(made, base):
        raise ValueError(f"`{name}` made {made!r:.100}, which is no {base.__name__} of Optuna")
    return made
