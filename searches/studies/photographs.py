"""The setting of the searches on photographs: nets, schedules, chunks and arms.

`paper` follows Mlodozeniec et al. (2023, I.3 and I.4): FixUp ResNets on CIFAR-10 and a ResNet-50
with GroupNorm on TinyImagenet; SGD at 0.1 with momentum, annealed by a cosine to 0.001; weight
decay of 1e-4, larger for earlier partitions by the square root of their share of the data; batches
of 250 and 20 augmentation samples. Their iterations depend on the number of images. An iteration is
a weight step and a hyper step, and so two steps.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from studies.comparison import LAPLACE, Comparison
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.hypers import Affine
from tuneparts.methods.baselines.config import (
    Augerino,
    Laplace,
    Standard,
    ValidationSet,
)
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import FixupResNet, NetConfig
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search

ITERATIONS = {1000: 2400, 5000: 8000, 10_000: 12_000, 20_000: 20_000, 50_000: 40_000}
"""Images of CIFAR-10 -> iterations; rotated images take twice as many."""
TINY_ITERATIONS = {10_000: 80_000, 50_000: 80_000, 100_000: 40_000}
"""The same of TinyImagenet as printed; rotated images take 120,000 at every size."""
SGD = {"kind": "sgd", "lr": 0.1, "schedule": "cosine", "final_lr": 0.001, "weight_decay": 1e-4}
HALF = "as many updates as the iterations of the paper"


def iterations(table: Mapping[int, int], num_train: int) -> int:
    """The iterations that the paper takes for so many images.

    Raises:
        ConfigError: The paper has no such size.
    """
    if num_train not in table:
        raise ConfigError(
            f"iterations are known for {', '.join(map(str, table))} images, but `num_train` is "
            f"{num_train}. Use one of these, or another scale."
        )
    return table[num_train]


def small_net(scale: Scale, depth: int) -> FixupResNet:
    """The FixUp net of a scale; that of the paper has 16 channels in its first stage."""
    return FixupResNet(depth=depth, planes=scale.pick(smoke=2, cpu=8, paper=16))


class Photographs(Config):
    """The settings that the arms share, and the arms made from them."""

    scale: Scale
    iterations: int
    """Updates of partitioned training."""
    net: NetConfig
    proportions: tuple[float, ...] = (0.8, 0.1, 0.1)
    defaults: str = "initial"
    """Of later partitions: FixUp nets need initial values, nets with norms can have zeros."""
    start: float = 0.05
    """Where the six ranges start."""
    has_laplace: bool = True
    """Whether the net's layers have Kronecker factors, and its classes are few."""
    gpus: float = 1.0

    @property
    def steps(self) -> int:
        """Budget of an arm."""
        return 2 * self.iterations

    @property
    def shared(self) -> dict[str, Any]:
        """Fields of every config."""
        is_paper = self.scale is Scale.PAPER
        return {
            "steps": self.steps,
            "interval": max(1, self.steps // 5),
            "net": self.net,
            "batch_size": self.scale.pick(smoke=20, cpu=50, paper=250),
            "optimiser": SGD if is_paper else {**SGD, "lr": 0.05},
        }

    @property
    def samples(self) -> dict[str, int]:
        """Augmentation samples."""
        num = self.scale.pick(smoke=2, cpu=4, paper=20)
        return {"samples": num, "eval_samples": num}

    def comparison(self) -> Comparison:
        """The same setting as a comparison, for its references and retrained nets."""
        return Comparison(
            shared=self.shared,
            samples=self.samples,
            start=self.start,
            reach=None if self.scale is Scale.PAPER else 18.0,
            evidence_every=self.scale.pick(smoke=5, cpu=20, paper=100),
            resources=self._resources(),
        )

    def learners(self) -> tuple[Arm, ...]:
        """Methods that learn the ranges while they train."""
        comparison = self.comparison()
        learnt = {**self.shared, "hypers": comparison.learnt()}
        plain = {**learnt, "optimiser": {**learnt["optimiser"], "weight_decay": 0.0}}
        arms = [
            self._arm("partitioned", comparison.at_rate(self.partitioned(learnt))),
            self._arm("validation", comparison.at_rate(ValidationSet(**learnt))),
            self._arm("augerino", comparison.at_rate(Augerino(**learnt))),
            self._halved("augerino_iterations", comparison.at_rate(Augerino(**learnt))),
        ]
        if self.has_laplace:
            evidence_every = comparison.evidence_every
            config = Laplace(**plain, **LAPLACE, evidence_every=evidence_every)
            arms.append(self._arm("laplace", comparison.at_rate(config)))
        return tuple(arms)

    def partitioned(self, fields: Mapping[str, Any], **more: Any) -> Partitioned:
        """Partitioned training in this setting."""
        return Partitioned(
            **{
                **fields,
                "proportions": self.proportions,
                "defaults": self.defaults,
                "weight_decay_scaling": "sqrt",
                **more,
            }
        )

    def references(self) -> tuple[Arm, ...]:
        """No augmentation at both counts, and rotations over the whole circle."""
        comparison = self.comparison()
        none = Standard(**self.shared, train_on="all")
        oracle = {"affine": {**dict.fromkeys(Affine.NAMES, 0.0), "rotation": math.pi}}
        return (
            self._arm("none", none),
            self._halved("none_iterations", none),
            self._arm(
                "oracle", comparison.augmented(hypers={**oracle, **self.samples}, train_on="all")
            ),
        )

    def retrained(self, leaders: Sequence[str]) -> tuple[Arm, ...]:
        """Standard nets on all data at what other arms found; Laplace's decay is found too."""
        return tuple(
            arm.replaced({"config.optimiser.weight_decay": 0.0})
            if arm.follows == "laplace"
            else arm
            for arm in self.comparison().retrained(leaders)
        )

    def search(self, *, data: Data, **fields: Any) -> Search:
        """Learners, references and retrained nets as one search."""
        leaders = ["partitioned", "validation", *(["laplace"] if self.has_laplace else [])]
        return Search(
            scale=self.scale,
            data=data,
            metric="val/accuracy",
            compare=("partitioned", "validation"),
            references=("none", "oracle"),
            steps=self.steps,
            seeds=self.scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2)),
            arms=(*self.learners(), *self.references(), *self.retrained(leaders)),
            figures=("scores", "accuracy", "hypers", "samples"),
            **fields,
        )

    def _arm(self, name: str, config: Any, **fields: Any) -> Arm:
        return Arm(name=name, config=config, resources=self._resources(), **fields)

    def _halved(self, name: str, config: Any) -> Arm:
        """The same with as many steps as partitioned training takes updates."""
        changes = {"steps": self.iterations, "interval": max(1, self.iterations // 5)}
        if hasattr(config, "hyper_lr") and self.scale is not Scale.PAPER:
            changes |= {"hyper_lr": 2 * config.hyper_lr}  # the same reach in half the steps
        return self._arm(name, config.replaced(changes), budget_note=HALF)

    def _resources(self) -> Resources:
        return Resources(gpus=self.gpus if self.scale is Scale.PAPER else 0)
