"""The setting of the searches about fixing weights: data, net, pretraining, rounds and seeds.

They differ in what they vary; which net is fixed, on which data, after how much pretraining and for
how long is the same at each scale, and stands here. `paper` follows Subia-Waud & Dasmahapatra
(2023): 27.05 epochs of CIFAR-10 in ten rounds of a ResNet-18, after pretraining of our own, which
trials of one seed share.
"""

from typing import Any

from tuneparts.core.config import Config
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.nets import DigitsCnn, ResNet18
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method


class Fixing(Config):
    """One scale of the setting."""

    scale: Scale
    num_reports: int = 4
    """Of a trial of the usual length."""
    converged: bool = False
    """Whether nets are pretrained until more of it changes little, once for all arms of a seed."""
    harder: bool = False
    """Whether the task at `cpu` scale is CIFAR-10 at 16 x 16 pixels, with a ResNet-18 of width 8
    and BatchNorm, instead of rotated digits."""

    @property
    def pretrain(self) -> int:
        """Steps before weights become Gaussians."""
        if self.harder:
            return self.scale.pick(smoke=10, cpu=3000, paper=35_000)
        if self.converged:
            return self.scale.pick(smoke=10, cpu=4000, paper=35_000)
        return self.scale.pick(smoke=10, cpu=800, paper=10_500)

    @property
    def steps(self) -> int:
        """Steps of a trial with rounds of the usual length."""
        rounds = 600 if self.harder else 800
        return self.pretrain + self.scale.pick(smoke=10, cpu=rounds, paper=4734)

    def config(self, *, rounds: int | None = None, **fields: Any) -> Pwfn:
        """Pretraining and rounds.

        Args:
            rounds: steps for all rounds together, the usual number when not given.
            fields: what the question varies.
        """
        steps = self.steps if rounds is None else self.pretrain + rounds
        return Pwfn(
            **self._shared(steps),
            pretrain=self.pretrain / steps,
            shares_pretraining=self._shares_pretraining,
            **fields,
        )

    @property
    def _shares_pretraining(self) -> bool:
        # Searches whose results are published without it keep their digests.
        return self.converged or self.harder or self.scale is Scale.PAPER

    def unfixed(self) -> Standard:
        """The reference without fixing: the same net, augmentation and number of steps."""
        return Standard(**self._shared(self.steps))

    def arm(self, name: str, config: Method, **fields: Any) -> Arm:
        """An arm with the resources of this scale."""
        resources = Resources(gpus=self.scale.pick(smoke=0, cpu=0, paper=0.5))
        return Arm(name=name, config=config, resources=resources, **fields)

    def search(self, name: str, *, paper_seeds: int = 3, **fields: Any) -> Search:
        """A search in this setting, selected by validation accuracy.

        Args:
            name: of the search.
            paper_seeds: how many seeds at `paper` scale.
            fields: of the `Search`.
        """
        seeds = self.scale.pick(smoke=1, cpu=5, paper=paper_seeds)
        return Search(
            **{
                "name": name,
                "scale": self.scale,
                "data": self._data(),
                "metric": "val/accuracy",
                "steps": self.steps,
                "seeds": tuple(range(seeds)),
                **fields,
            }
        )

    def _shared(self, steps: int) -> dict[str, Any]:
        if self.harder and self.scale is not Scale.PAPER:
            return self._harder(steps)
        return {
            "steps": steps,
            "interval": max(1, steps // self.num_reports),
            "net": self.scale.pick(
                smoke=DigitsCnn(), cpu=DigitsCnn(channels=(8, 16), hidden=32), paper=ResNet18()
            ),
            "batch_size": self.scale.pick(smoke=20, cpu=50, paper=256),
            "optimiser": self.scale.pick(
                smoke={"lr": 0.005},
                cpu={"lr": 0.005, "schedule": "cosine"},
                paper={"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine"},
            ),
            "augmentation": self.scale.pick(
                smoke={}, cpu={}, paper={"crop_padding": 4, "flip": True}
            ),
        }

    def _harder(self, steps: int) -> dict[str, Any]:
        return {
            "steps": steps,
            "interval": max(1, steps // self.num_reports),
            "net": ResNet18(width=self.scale.pick(smoke=2, cpu=8, paper=64)),
            "batch_size": self.scale.pick(smoke=20, cpu=100, paper=256),
            "optimiser": {"kind": "sgd", "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine"},
            "augmentation": self.scale.pick(
                smoke={}, cpu={"crop_padding": 2, "flip": True}, paper={}
            ),
        }

    def _data(self) -> Data:
        if self.harder and self.scale is Scale.CPU:
            return Data(name="cifar10", pool=2, num_train=10_000, num_val=2000, num_test=5000)
        return self.scale.pick(
            smoke=Data(name="digits", num_train=200, num_val=100),
            cpu=Data(
                name="mnist", rotated=True, pool=2, num_train=5000, num_val=1000, num_test=5000
            ),
            paper=Data(name="cifar10", num_val=5000),
        )
