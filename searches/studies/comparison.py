"""The arms of one comparison: search algorithms against methods that learn hypers in one run.

The searches that ask this question differ in data, net and size; which arms there are, what each
may see and how many steps it has is the same, and stands here.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from studies import reach
from tuneparts.core.config import Config
from tuneparts.data.config import Data
from tuneparts.hypers import Affine
from tuneparts.methods.baselines.config import (
    Augerino,
    Laplace,
    LastLayer,
    Standard,
    ValidationSet,
)
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.algorithms.sampler import Optuna
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.space import Dimension, Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method

C = TypeVar("C", bound=Method)

PAPER_RANGE = 3.0
"""Largest nuisance range that random search draws in Mlodozeniec et al. (2023, appendix G)."""
TIGHT_RANGE = 0.5
"""The same as a practitioner would choose it."""
LAST_STAGE = 0.25
"""Share of the steps for fine-tuning and for the release."""
PRINTED = {
    "partitioned": 1e-3,
    "released": 1e-3,
    "validation": 1e-3,
    "augerino": 0.05,
    "laplace": 0.05,
    "last_layer": 1e-3,
}
"""Hyper rates of Mlodozeniec et al. (2023), Immer et al. (2022) and Schwoebel et al. (2022)."""
LAPLACE = {"curvature": "kronecker", "precision": 0.01, "precision_lr": 0.02}
"""The prior starts weak and moves slowly: from precision 1 and at the rate of the hypers it grew
within a few evidence steps to where the net no longer fitted its training data."""


class Trials(Config):
    """The number of trials of each searching arm, per seed."""

    random: int
    tpe: int
    asha: int
    population: int
    num_rounds: int


class Comparison(Config):
    """The settings that all arms of the comparison share, and the arms made from them."""

    shared: dict[str, Any]
    """Fields of every config: steps, interval, net, batch_size, and optimiser with its `lr`."""
    samples: dict[str, int]
    """Augmentation samples: `samples` and `eval_samples`."""
    start: float = 0.3
    """Where all six ranges start. From 0.05, Augerino and Laplace shrank rotation to nothing on
    rotated digits; the same start for all methods favours none."""
    reach: float | None = 18.0
    """Hyper rate times hyper steps of every learner: how far an unconstrained range can travel.
    None takes the rates that the papers print."""
    evidence_every: int = 20
    """Updates per evidence step of Laplace."""
    resources: Resources = Resources()

    def learnt(self) -> dict[str, Any]:
        """Hypers of methods that learn all six ranges."""
        return {"affine": dict.fromkeys(Affine.NAMES, self.start), **self.samples}

    def last_stage(self) -> dict[str, Any]:
        """Settings of fine-tuning and of the release: half the learning rate, annealed."""
        optimiser = dict(self.shared["optimiser"])
        optimiser |= {"lr": optimiser["lr"] / 2, "schedule": "cosine"}
        return {"fraction": LAST_STAGE, "optimiser": optimiser}

    def augmented(self, **fields: Any) -> Standard:
        """A standard net at ranges that a search or another arm will fill in."""
        return Standard(**{**self.shared, "hypers": self.learnt(), **fields})

    def references(self) -> tuple[Arm, ...]:
        """Two reference arms: no augmentation, and the rotations that made the data."""
        oracle = {"affine": {**dict.fromkeys(Affine.NAMES, 0.0), "rotation": math.pi}}
        return (
            self._arm("none", Standard(**self.shared, train_on="all")),
            self._arm("oracle", self.augmented(hypers={**oracle, **self.samples}, train_on="all")),
        )

    def learners(self) -> tuple[Arm, ...]:
        """Every method that learns the ranges while it trains."""
        learnt = {**self.shared, "hypers": self.learnt()}
        late = self.last_stage()
        configs: dict[str, Method] = {
            "partitioned": Partitioned(**learnt),
            "released": ReleasedConfig(**learnt, release=late),
            "validation": ValidationSet(**learnt),
            "validation_finetuned": ValidationSet(**learnt, finetune=late),
            "augerino": Augerino(**learnt),
            "augerino_unsafe": Augerino(**learnt, safe=False),
            "laplace": Laplace(**learnt, **LAPLACE, evidence_every=self.evidence_every),
            "last_layer": LastLayer(**learnt),
        }
        return tuple(self._arm(name, self.at_rate(config)) for name, config in configs.items())

    def at_rate(self, config: C) -> C:
        """The config of a learner at the rate of its hypers."""
        if self.reach is not None:
            return reach.with_reach(config, self.reach)
        return config.replaced({"hyper_lr": PRINTED[config.model_dump()["method"]]})

    def retrained(self, leaders: Sequence[str]) -> tuple[Arm, ...]:
        """Standard nets on all data at what other arms found."""
        return tuple(
            self._arm(f"retrained_{leader}", self.augmented(train_on="all"), follows=leader)
            for leader in leaders
        )

    def searches(self, trials: Trials) -> tuple[Arm, ...]:
        """Random search in the paper's ranges and in tight ones; others in the tight ones."""
        config = self.augmented()
        tight, interval = space(TIGHT_RANGE), config.interval
        return (
            self._arm(
                "random_paper",
                config,
                algorithm=RandomSearch(num_trials=trials.random),
                space=space(PAPER_RANGE),
            ),
            self._arm(
                "random_tight",
                config,
                algorithm=RandomSearch(num_trials=trials.random),
                space=tight,
            ),
            self._arm("tpe", config, algorithm=Optuna(num_trials=trials.tpe), space=tight),
            self._arm(
                "asha",
                config,
                algorithm=Asha(num_trials=trials.asha, min_steps=interval),
                space=tight,
            ),
            self._arm(
                "pbt",
                config,
                algorithm=Pbt(population=trials.population, num_rounds=trials.num_rounds),
                space=tight,
            ),
        )

    def search(self, *, name: str, notes: str, scale: Scale, data: Data) -> Search:
        """All of it as one search: learners, references, searching arms, and retrained nets."""
        trials = Trials(
            random=scale.pick(smoke=2, cpu=64, paper=200),
            tpe=scale.pick(smoke=2, cpu=24, paper=64),
            asha=scale.pick(smoke=4, cpu=64, paper=200),
            population=scale.pick(smoke=4, cpu=8, paper=16),
            num_rounds=scale.pick(smoke=2, cpu=5, paper=10),
        )
        return Search(
            name=name,
            question="How many random-search trials does one run that learns its augmentation "
            "replace?",
            notes=f"{notes}\n{reach.listed(self.learners())}\n",
            scale=scale,
            data=data,
            metric="val/accuracy",
            compare=("partitioned", "random_tight"),
            references=("none", "oracle"),
            answer="equivalent_trials",
            found={"hyper/rotation": math.pi},
            steps=self.shared["steps"],
            seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2, 3, 4)),
            arms=(
                *self.learners(),
                *self.references(),
                *self.searches(trials),
                *self.retrained(["partitioned", "validation", "augerino", "laplace", "last_layer"]),
                *self.retrained(["random_paper", "random_tight", "tpe"]),
            ),
            score_test_always=True,
            figures=(
                "accuracy",
                "scores",
                "hypers",
                "samples",
                "projections",
                "best_of_n",
                "schedule",
            ),
        )

    def _arm(self, name: str, config: Any, **fields: Any) -> Arm:
        return Arm(name=name, config=config, resources=self.resources, **fields)


def space(largest: float) -> dict[str, Dimension]:
    """Search space of the six ranges: rotation up to pi, the other five up to `largest`."""
    return {
        f"hypers.affine.{name}": Uniform(low=0.0, high=math.pi if name == "rotation" else largest)
        for name in Affine.NAMES
    }
