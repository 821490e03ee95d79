"""A benchmark task in which every method's own settings are tuned, at the same cost for all.

Each arm is two: `tune_NAME` spends the steps of as many whole trials as every other one, on
validation data, over what its method leaves open (halving and ASHA spread them over twice as many,
and ASHA, which waits for nobody, takes up to a fourth more); `NAME` then trains once on all data at
what was selected, under a fresh seed. Methods that learn hypers inside a run tune the learning rate
of weights and hypers, where the hypers start and how long the last stage is; a standard net tunes
its learning rate and the hypers.
The bill of `NAME` holds both (`steps incl. leader` in the table).
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from studies import reach
from studies.forms import JOINT, LEAN, MIXED
from tuneparts.core.config import Config
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard, ValidationSet
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.search.algorithms.base import Algorithm, RandomSearch
from tuneparts.search.algorithms.halving import Asha, SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Optuna, Tpe
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice, Dimension, Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method

Learning: TypeAlias = Partitioned | ReleasedConfig | ValidationSet
QUESTION = "With its own settings tuned at equal cost, which way to the hypers gives the best net?"
SEARCHED = ("random", "random_paper", "tpe", "gp", "qmc", "halving", "asha")
"""Searching arms; the second one draws from the paper's space where there is one."""
FRACTIONS = Choice(options=(0.15, 0.25, 0.4))
ASKED_AT_ONCE = (RandomSearch, SuccessiveHalving)
"""Algorithms whose trials begin together, so that standard ones can be packed."""
FACTOR = 3.0
"""Rates are tuned from so many times below to so many times above what a setting suggests."""


class Tuned(Config):
    """What the arms of a task share."""

    shared: dict[str, Any]
    """Fields of every config: steps, interval, net, batch_size, and optimiser with its `lr`."""
    learnt: dict[str, Any]
    """Hypers of methods that learn them, samples included."""
    starts: dict[str, Any] | None = None
    """Path and options of where learnt hypers start; None where that is not tuned."""
    space: dict[str, Any]
    """Hypers that a search draws, in sensible ranges: path -> dimension."""
    paper_space: dict[str, Any] | None = None
    """The same in the ranges that a paper printed."""
    packed: int = 1
    """Standard trials of a seed that train together, where the net gains by it."""

    def arms(self, scale: Scale) -> tuple[Arm, ...]:
        """Every method and every algorithm, each with its tuning."""
        num = scale.pick(smoke=2, cpu=8, paper=32)
        found: list[Arm] = []
        for name, config in self.learners().items():
            plain = RandomSearch(num_trials=num)
            found += self._tuned(name, config, plain, self._own_space(config))
        standard = Standard(**self.shared, hypers=self.learnt)
        for name, algorithm in self._algorithms(num).items():
            drawn = self.paper_space if name == "random_paper" else self.space
            if drawn is not None:
                found += self._tuned(name, standard, algorithm, {**self._rate(), **drawn})
        population = Pbt(population=max(4, num), num_rounds=2)
        floats = {path: dim for path, dim in self.space.items() if not isinstance(dim, Choice)}
        if floats:  # its schedule of hypers cannot be trained again as one config
            found.append(
                Arm(
                    name="pbt",
                    config=standard,
                    algorithm=population,
                    space=floats,
                    packed=self.packed,
                )
            )
        return tuple(found)

    def learners(self) -> dict[str, Learning]:
        """Methods that learn the hypers while they train, before their settings are tuned."""
        learnt = {**self.shared, "hypers": self.learnt, "train_on": "train"}
        late = {"fraction": 0.25, "optimiser": self._late()}
        configs: dict[str, Learning] = {
            "partitioned": Partitioned(**learnt),
            "partitioned_best": ReleasedConfig(**learnt, **LEAN, **MIXED, **JOINT, release=late),
            "validation": ValidationSet(**learnt, finetune=late),
        }
        return {name: reach.with_reach(config, 18.0) for name, config in configs.items()}

    def _late(self) -> dict[str, Any]:
        optimiser = dict(self.shared["optimiser"])
        return {**optimiser, "lr": optimiser["lr"] / 2, "schedule": "cosine"}

    def _rate(self) -> dict[str, Dimension]:
        return {"optimiser.lr": _around(self.shared["optimiser"]["lr"])}

    def _own_space(self, config: Learning) -> dict[str, Dimension]:
        """What a method that learns hypers leaves open."""
        found = {**self._rate(), "hyper_lr": _around(config.hyper_lr)}
        if self.starts is not None:
            found |= self.starts
        for stage in ("release", "finetune"):
            if getattr(config, stage, None) is not None:
                found[f"{stage}.fraction"] = FRACTIONS
        return found

    def _algorithms(self, num: int) -> dict[str, Algorithm]:
        """Name -> algorithm, each with about the steps of `num` whole trials."""
        least = self.shared["steps"] // 4
        startup = {"n_startup_trials": max(1, num // 2)}
        found: dict[str, Algorithm] = {
            "random": RandomSearch(num_trials=num),
            "random_paper": RandomSearch(num_trials=num),
            "tpe": Tpe(num_trials=num, num_startup=max(1, num // 2)),
            "gp": Optuna(sampler="gp", num_trials=num, options=startup),
            "qmc": Optuna(sampler="qmc", num_trials=num),
            "halving": SuccessiveHalving(num_trials=2 * num, min_steps=least, reduction=2),
            "asha": Asha(num_trials=2 * num, min_steps=least, reduction=2),
        }
        assert tuple(found) == SEARCHED
        return found

    def _tuned(
        self,
        name: str,
        config: Method,
        algorithm: Algorithm,
        space: Mapping[str, Dimension],
    ) -> tuple[Arm, Arm]:
        leader = f"tune_{name}"
        whole = config.replaced({"train_on": "all"})
        begin_together = isinstance(algorithm, ASKED_AT_ONCE)
        packed = self.packed if begin_together and isinstance(config, Standard) else 1
        return (
            Arm(name=leader, config=config, algorithm=algorithm, space=dict(space), packed=packed),
            Arm(name=name, config=whole, follows=leader, adopts="config", fresh_seed=True),
        )

    def reference(self, name: str, hypers: Mapping[str, Any] | None) -> tuple[Arm, Arm]:
        """A standard net at given hypers, with its learning rate tuned like all others."""
        given = {} if hypers is None else {"hypers": dict(hypers)}
        config = Standard(**self.shared, **given)
        return self._tuned(name, config, RandomSearch(num_trials=4), self._rate())

    def search(
        self,
        *,
        name: str,
        notes: str,
        scale: Scale,
        data: Data,
        references: Mapping[str, Mapping[str, Any] | None],
        found: Mapping[str, float | None] | None = None,
    ) -> Search:
        """All of it as one search; references are a name -> the hypers given, worst first."""
        given = [self.reference(one, hypers) for one, hypers in references.items()]
        return Search(
            name=name,
            question=QUESTION,
            notes=f"{__doc__}\n{notes}",
            scale=scale,
            data=data,
            metric="val/accuracy",
            compare=("partitioned_best", "random"),
            references=tuple(references),
            within=0.005,
            found=dict(found or {}),
            steps=self.shared["steps"],
            seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=tuple(range(10))),
            arms=(*self.arms(scale), *(arm for pair in given for arm in pair)),
            figures=("scores", "accuracy", "accuracy:test/accuracy,cost/seconds", "hypers"),
        )


def _around(value: float) -> Uniform:
    return Uniform(low=value / FACTOR, high=value * FACTOR, log=True)


def affine_starts(names: tuple[str, ...]) -> dict[str, Any]:
    """Three places where all ranges may start, equally."""
    options = {f"{start:g}": dict.fromkeys(names, start) for start in (0.1, 0.3, 0.6)}
    return {"hypers.affine": Choice(options=options)}


def affine_space(names: tuple[str, ...], largest: float) -> dict[str, Any]:
    """Ranges of motions: rotation up to pi, the others up to `largest`."""
    return {
        f"hypers.affine.{name}": Uniform(low=0.0, high=math.pi if name == "rotation" else largest)
        for name in names
    }
