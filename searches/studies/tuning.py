"""A benchmark task in which every method's settings are tuned, at the same cost for all.

Each arm is two: `tune_NAME` spends the steps of as many whole trials as every other one, on
validation data, over what its method leaves open (halving and ASHA spread them over twice as many,
and ASHA, which is asynchronous, takes up to a fourth more); `NAME` then trains once on all data at
what was selected, under a fresh seed. Methods that learn hyperparameters inside a run tune both
learning rates, where the hyperparameters start and how long the last stage is; a standard net tunes
its learning rate and the hyperparameters. The total cost of `NAME` holds both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tuneparts as tp
from studies import after_question, reach
from studies.comparison import PAPER_RANGE, TIGHT_RANGE, space

Learning: TypeAlias = tp.Partitioned | tp.ValidationSet


@dataclass(frozen=True)
class Tuned:
    """What the arms of a task share."""

    shared: dict[str, Any]
    """Fields of the search: data, net, steps, interval, batch_size, and optimiser with its `lr`."""
    learnt: dict[str, Any]
    """Hyperparameters of methods that learn them, samples included."""
    space: dict[str, tp.Dimension]
    """Hyperparameters that a search draws, in sensible ranges."""
    paper_space: dict[str, tp.Dimension] = field(default_factory=dict)
    """The same in the ranges that a paper printed; the arm `random_paper` draws from them."""
    starts: dict[str, tp.Dimension] = field(default_factory=dict)
    """Where learnt hyperparameters start, if that is tuned."""
    packed: int = 1
    """Standard trials of a seed that train together, where the net gains by it."""

    def search(
        self,
        docstring: str | None,
        *,
        scale: tp.Scale,
        references: Mapping[str, Any],
        found: Mapping[str, float | None] | None = None,
    ) -> tp.Search:
        """Learners, searching arms and references: a name -> the hyperparameters given."""
        num, steps = scale.pick(smoke=2, cpu=8, paper=32), self.shared["steps"]
        rate = {"optimiser.lr": _around(self.shared["optimiser"].lr)}
        arms: dict[str, tp.Method | tp.Arm] = {}
        for name, config in self._learners().items():
            own = {**rate, "hyper_lr": _around(config.hyper_lr), **self.starts}
            if config.finetune:
                own["finetune.fraction"] = tp.Choice([0.15, 0.25, 0.4])
            arms |= _tuned(name, config, tp.RandomSearch(num), own)
        startup, halved = max(1, num // 2), {"min_steps": steps // 4, "reduction": 2}
        algorithms: dict[str, tp.Algorithm] = {
            "random": tp.RandomSearch(num),
            "random_paper": tp.RandomSearch(num),
            "tpe": tp.Tpe(num_trials=num, num_startup=startup),
            "gp": tp.Optuna(num_trials=num, sampler="gp", options={"n_startup_trials": startup}),
            "qmc": tp.Optuna(num_trials=num, sampler="qmc"),
            "halving": tp.SuccessiveHalving(num_trials=2 * num, **halved),
            "asha": tp.Asha(num_trials=2 * num, **halved),
        }
        for name, algorithm in algorithms.items():
            if drawn := self.paper_space if name == "random_paper" else self.space:
                arms |= self._standard(name, {}, algorithm, {**rate, **drawn})
        floats = {p: dim for p, dim in self.space.items() if not isinstance(dim, tp.Choice)}
        if floats:  # its schedule of hyperparameters cannot be trained again as one config
            population = tp.Pbt(population=max(4, num), num_rounds=2)
            arms["pbt"] = tp.Arm(
                config=tp.Standard(), algorithm=population, space=floats, packed=self.packed
            )
        for name, hypers in references.items():
            arms |= self._standard(name, {"hypers": hypers}, tp.RandomSearch(4), rate)
        return tp.Search(
            **self.shared,
            hypers=self.learnt,
            notes=f"{__doc__}\n{after_question(docstring)}",
            compare=("partitioned_best", "random"),
            references=tuple(references),
            within=0.005,
            found=dict(found or {}),
            seeds=scale.pick(smoke=1, cpu=5, paper=10),
            arms=arms,
            figures=("scores", "accuracy", "accuracy:test/accuracy,cost/seconds", "hypers"),
        )

    def _learners(self) -> dict[str, Learning]:
        """Methods that learn the hyperparameters while they train, at a reach of 18."""
        rate = self.shared["optimiser"]
        # Explicit, so that it stays as it is when the rate is tuned.
        late = tp.Finetune(optimiser=rate.replaced({"lr": rate.lr / 2, "schedule": "cosine"}))
        given = {name: one for name, one in self.shared.items() if name != "data"}
        given |= {"hypers": self.learnt, "train_on": "train"}
        configs: dict[str, Learning] = {
            "partitioned": tp.Partitioned.published(**given),
            "partitioned_best": tp.Partitioned(**given, finetune=late),
            "validation": tp.ValidationSet(**given, finetune=late),
        }
        return {name: reach.with_reach(config, 18.0) for name, config in configs.items()}

    def _standard(
        self,
        name: str,
        fields: Mapping[str, Any],
        algorithm: tp.Algorithm,
        space: Mapping[str, tp.Dimension],
    ) -> dict[str, tp.Arm]:
        # Trials that begin together can be packed.
        together = isinstance(algorithm, tp.RandomSearch | tp.SuccessiveHalving)
        packed = self.packed if together else 1
        return _tuned(name, tp.Standard(**fields), algorithm, space, packed=packed)


def _tuned(
    name: str,
    config: tp.Method,
    algorithm: tp.Algorithm,
    space: Mapping[str, tp.Dimension],
    packed: int = 1,
) -> dict[str, tp.Arm]:
    source = f"tune_{name}"
    whole = config.replaced({"train_on": "all", "config_from": source})
    return {
        source: tp.Arm(config=config, algorithm=algorithm, space=dict(space), packed=packed),
        name: tp.Arm(config=whole, fresh_seed=True),
    }


def _around(value: float) -> tp.Uniform:
    """From three times below to three times above what a setting suggests."""
    return tp.Uniform(value / 3, value * 3, log=True)


def affine(samples: Mapping[str, int]) -> dict[str, Any]:
    """Fields of a task with six ranges, given its samples: the paper's go up to 3."""
    names = tp.Affine.NAMES
    starts = {f"{start:g}": dict.fromkeys(names, start) for start in (0.1, 0.3, 0.6)}
    return {
        "learnt": {"affine": dict.fromkeys(names, 0.3), **samples},
        "starts": {"hypers.affine": tp.Choice(starts)},
        "space": space(TIGHT_RANGE),
        "paper_space": space(PAPER_RANGE),
    }
