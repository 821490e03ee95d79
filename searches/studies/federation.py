"""The arms of one federated comparison: hypers learnt by clients, or given to federated averaging.

The searches that ask this question differ in data, net and size; which arms there are, and that all
of them ask the same clients for the same number of rounds, is the same, and stands here.
"""

import math
from typing import Any, TypeVar

from pydantic import Field

from studies.comparison import TIGHT_RANGE, space
from tuneparts.core.config import Config
from tuneparts.hypers import Affine
from tuneparts.methods.federated import ExchangeConfig, FedAvg, Federated
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search

C = TypeVar("C", bound=ExchangeConfig)
MORE_STEPS = (
    "as many rounds as the others; a client trains each partition from its chunk on, and judges"
)


class Federation(Config):
    """The settings that all arms of the comparison share, and the arms made from them."""

    rounds: int = Field(gt=0)
    rounds_per_report: int = Field(gt=0)
    num_asked: int = Field(gt=0)
    """Clients per round."""
    num_batches: int = Field(gt=0)
    """Batches of one client; fixes how many steps the rounds can take."""
    shared: dict[str, Any]
    """Fields of every config: net, batch_size, optimiser, clients, server."""
    samples: dict[str, int]
    """Augmentation samples: `samples` and `eval_samples`."""
    proportions: tuple[float, ...]
    """Of clients and weights."""
    hyper_lr: float
    hyper_batches: int | None = None
    start: float = 0.05
    """Where all six learnt ranges start."""
    dropout: float = 0.1
    """Where rates start, and where they stay when they are not learnt."""
    num_trials: int = Field(gt=0)
    """Of random search."""
    resources: Resources = Resources()

    @property
    def steps(self) -> int:
        """Steps of federated averaging: each client that is asked goes through its data once."""
        return self.rounds * self.num_asked * self.num_batches

    def arms(self) -> tuple[Arm, ...]:
        """Five arms: learnt hypers; fixed, searched and oracle ones; averaging at learnt ones."""
        affine = dict.fromkeys(Affine.NAMES, 0.0)
        augmented = self._averaging(affine={})
        return (
            Arm(
                name="federated",
                config=self._federated(),
                resources=self.resources,
                budget_note=MORE_STEPS,
            ),
            self._arm("fedavg", self._averaging()),
            self._arm(
                "random",
                augmented,
                algorithm=RandomSearch(num_trials=self.num_trials),
                space={
                    **space(TIGHT_RANGE),
                    "hypers.dropout.rate": Uniform(low=0.0, high=0.5),
                },
            ),
            self._arm("oracle", self._averaging(affine={**affine, "rotation": math.pi})),
            self._arm("retrained", augmented, follows="federated"),
        )

    def search(self, *, scale: Scale, **fields: Any) -> Search:
        """The arms as a search; the rest of its fields are given."""
        is_long = scale is Scale.PAPER  # the paper averages ten scores along its curves
        return Search(
            **fields,
            scale=scale,
            metric="val/accuracy",
            compare=("federated", "fedavg"),
            references=("oracle",),
            steps=self.steps,
            seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
            arms=self.arms(),
            figures=(
                "communication:val/accuracy,10" if is_long else "communication",
                "hypers",
                "accuracy:val/accuracy",
                "projections",
            ),
        )

    def _federated(self) -> Federated:
        config = Federated(
            **self._fields(affine=dict.fromkeys(Affine.NAMES, self.start)),
            proportions=self.proportions,
            hyper_lr=self.hyper_lr,
            hyper_batches=self.hyper_batches,
        )
        # A client of the first chunk trains every partition, and no client has more to do.
        return _limited(config, len(self.proportions) * self.steps, self.rounds)

    def _averaging(self, **hypers: Any) -> FedAvg:
        return _limited(FedAvg(**self._fields(**hypers)), self.steps, self.rounds)

    def _fields(self, **hypers: Any) -> dict[str, Any]:
        return {
            **self.shared,
            "rounds": self.rounds,
            "rounds_per_report": self.rounds_per_report,
            "clients_per_round": self.num_asked,
            "hypers": {"dropout": {"rate": self.dropout}, **hypers, **self.samples},
        }

    def _arm(self, name: str, config: FedAvg, **fields: Any) -> Arm:
        return Arm(name=name, config=config, resources=self.resources, **fields)


def _limited(config: C, steps: int, rounds: int) -> C:
    """Set `steps` to cover all rounds, and `interval` to the steps of one report's rounds."""
    per_report = config.rounds_per_report or 1
    return config.replaced({"steps": steps, "interval": steps // rounds * per_report})
