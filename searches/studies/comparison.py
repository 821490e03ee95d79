"""The arms of one comparison: search algorithms against methods that learn in one run.

The searches that ask this question differ in data, net and size.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import tuneparts as tp
from studies import after_question, digits, on_gpus, reach

C = TypeVar("C", bound=tp.Method)

PAPER_RANGE = 3.0
"""Largest range but for rotation in Mlodozeniec et al. (2023, appendix G)."""
TIGHT_RANGE = 0.5
"""The same as a practitioner would choose it."""
PRINTED = {"augerino": 0.05, "laplace": 0.05}
"""Hyper rates of Immer et al. (2022); those of the other methods are printed as 1e-3
(Mlodozeniec et al. 2023, Schwoebel et al. 2022)."""
LAPLACE: dict[str, Any] = {"curvature": "kronecker", "precision": 0.01, "precision_lr": 0.02}
"""The prior starts weak and moves slowly: from precision 1 and at the hyper rate it grew within a
few evidence steps to where the net no longer fitted its training data."""


def space(largest: float) -> dict[str, tp.Dimension]:
    """Six ranges: rotation up to pi, the others up to `largest`."""
    tops = dict.fromkeys(tp.Affine.NAMES, largest) | {"rotation": math.pi}
    return {f"hypers.affine.{name}": tp.Uniform(0.0, high) for name, high in tops.items()}


def rotation_only(samples: Mapping[str, int]) -> dict[str, Any]:
    """The hyperparameters that made rotated data."""
    return {"affine": dict.fromkeys(tp.Affine.NAMES, 0.0) | {"rotation": math.pi}, **samples}


@dataclass(frozen=True)
class Comparison:
    """What the arms share, and the arms."""

    shared: dict[str, Any]
    """Fields of the search: data, net, steps, interval, batch_size, and optimiser with its `lr`."""
    samples: dict[str, int]
    """Augmentation samples: `samples` and `eval_samples`."""
    start: float = 0.3
    """Where all six ranges start. From 0.05, Augerino and Laplace shrank rotation to nothing on
    rotated digits; the same start for all methods favours none."""
    reach: float | None = 18.0
    """Hyper rate times hyper steps of every learner; None for the rates that papers print."""
    evidence_every: int = 20
    """Updates per evidence step of Laplace."""

    @property
    def hypers(self) -> dict[str, Any]:
        """All six ranges, where they start."""
        return {"affine": dict.fromkeys(tp.Affine.NAMES, self.start), **self.samples}

    def last_stage(self, fraction: float = 0.25) -> tp.Finetune:
        """Fine-tuning at half the learning rate, which falls along a cosine."""
        rate = self.shared["optimiser"]
        late = rate.replaced({"lr": rate.lr / 2, "schedule": "cosine"})
        return tp.Finetune(fraction=fraction, optimiser=late)

    def whole(self, config: C) -> C:
        """A config with what all arms share and it does not set: its hyper steps depend on it."""
        given = {"hypers": self.hypers, **self.shared}
        new = type(config).model_fields.keys() - config.model_fields_set
        return config.replaced({name: one for name, one in given.items() if name in new})

    def at_rate(self, config: C) -> C:
        """A learner at its hyper rate."""
        config = self.whole(config)
        if self.reach is not None:
            return reach.with_reach(config, self.reach)
        return config.replaced({"hyper_lr": PRINTED.get(config.model_dump()["method"], 1e-3)})

    def learners(self) -> dict[str, tp.Method]:
        """Every method that learns the ranges while it trains."""
        configs = {
            "partitioned": tp.Partitioned.published(),
            "released": tp.Partitioned.published(finetune=self.last_stage()),
            "validation": tp.ValidationSet(),
            "validation_finetuned": tp.ValidationSet(finetune=self.last_stage()),
            "augerino": tp.Augerino(),
            "augerino_unsafe": tp.Augerino(safe=False),
            "laplace": tp.Laplace(**LAPLACE, evidence_every=self.evidence_every),
            "last_layer": tp.LastLayer(),
        }
        return {name: self.at_rate(config) for name, config in configs.items()}

    def references(self) -> dict[str, tp.Method]:
        """No augmentation, and the rotations that made the data."""
        return {
            "none": tp.Standard(train_on="all", hypers=[]),
            "oracle": tp.Standard(train_on="all", hypers=rotation_only(self.samples)),
        }

    def retrained(self, sources: Iterable[str], **fields: Any) -> dict[str, tp.Method]:
        """Standard nets on all data at what other arms found."""
        return {
            f"retrained_{one}": tp.Standard(train_on="all", hypers_from=one, **fields)
            for one in sources
        }

    def searches(self, scale: tp.Scale) -> dict[str, tp.Arm]:
        """Random search in the paper's ranges and in tight ones; others in the tight ones."""
        net, tight = tp.Standard(), space(TIGHT_RANGE)
        random = tp.RandomSearch(scale.pick(smoke=2, cpu=64, paper=200))
        population, rounds = scale.pick(smoke=(4, 2), cpu=(8, 5), paper=(16, 10))
        asha, least = scale.pick(smoke=4, cpu=64, paper=200), self.shared["steps"] // 10
        tpe = tp.Optuna(num_trials=scale.pick(smoke=2, cpu=24, paper=64))
        return {
            "random_paper": net.searched_by(random, space(PAPER_RANGE)),
            "random_tight": net.searched_by(random, tight),
            "tpe": net.searched_by(tpe, tight),
            "asha": net.searched_by(tp.Asha(num_trials=asha, min_steps=least), tight),
            "pbt": net.searched_by(tp.Pbt(population=population, num_rounds=rounds), tight),
        }

    def search(self, docstring: str | None, *, scale: tp.Scale, gpus: float = 0) -> tp.Search:
        """Learners, references, searching arms, and retrained nets."""
        learnt = ["partitioned", "validation", "augerino", "laplace", "last_layer"]
        arms: dict[str, tp.Method | tp.Arm] = {
            **self.learners(),
            **self.references(),
            **self.searches(scale),
            **self.retrained([*learnt, "random_paper", "random_tight", "tpe"]),
        }
        return tp.Search(
            **self.shared,
            hypers=self.hypers,
            notes=after_question(docstring) + reach.listed(self.learners()),
            compare=("partitioned", "random_tight"),
            references=("none", "oracle"),
            answer="equivalent_trials",
            found={"hyper/rotation": math.pi},
            seeds=scale.pick(smoke=1, cpu=5, paper=5),
            arms=on_gpus(scale, gpus, arms),
            score_test_always=True,
            figures=(
                *("accuracy", "scores", "hypers", "samples", "projections", "best_of_n"),
                "schedule",
            ),
        )


def on_digits(scale: tp.Scale, *, reports: int) -> Comparison:
    """The comparison on scikit-learn's digits."""
    steps = scale.pick(smoke=40, cpu=2400, paper=20_000)
    samples = {"samples": scale.pick(smoke=2, cpu=4, paper=20), "eval_samples": 8}
    return Comparison({**digits.small(), "steps": steps, "interval": steps // reports}, samples)
