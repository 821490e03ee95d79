"""The setting of the searches about fixing weights: data, net, pretraining, rounds and seeds.

`paper` follows Subia-Waud & Dasmahapatra (2023): 27.05 epochs of CIFAR-10 in ten rounds of a
ResNet-18, after our own pretraining, which trials of one seed share.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus

AT_CPU = """
`cpu` scale has 5,000 rotated MNIST digits of 14 x 14 pixels and a net of 6,218 weights.
"""
SGD = tp.Sgd(lr=0.1, weight_decay=5e-4, schedule="cosine")


@dataclass(frozen=True)
class Fixing:
    """One scale of the setting."""

    scale: tp.Scale
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
        cpu = 3000 if self.harder else 4000 if self.converged else 800
        paper = 35_000 if self.harder or self.converged else 10_500
        return self.scale.pick(smoke=10, cpu=cpu, paper=paper)

    @property
    def steps(self) -> int:
        """Steps of a trial with rounds of the usual length."""
        cpu = 600 if self.harder else 800
        return self.pretrain + self.scale.pick(smoke=10, cpu=cpu, paper=4734)

    def config(self, *, rounds: int | None = None, **fields: Any) -> tp.Pwfn:
        """Pretraining, and so many steps for all rounds together."""
        steps = self.steps if rounds is None else self.pretrain + rounds
        # Searches whose results are published without shared pretraining keep their digests.
        shares = self.converged or self.harder or self.scale is tp.Scale.PAPER
        usual = {
            "steps": steps,
            "interval": max(1, steps // self.num_reports),
            "pretrain": self.pretrain / steps,
            "shares_pretraining": shares,
            "augmentation": self.augmentation,
        }
        return tp.Pwfn(**{**usual, **fields})

    def unfixed(self) -> tp.Standard:
        """The reference without fixing: the same net, augmentation and number of steps."""
        return tp.Standard(augmentation=self.augmentation)

    @property
    def augmentation(self) -> dict[str, Any]:
        """Of every arm."""
        cpu = {"crop_padding": 2, "flip": True} if self.harder else {}
        return self.scale.pick(smoke={}, cpu=cpu, paper={"crop_padding": 4, "flip": True})

    def search(
        self,
        docstring: str | None,
        arms: Mapping[str, tp.Method | tp.Arm],
        *,
        paper_seeds: int = 3,
        **fields: Any,
    ) -> tp.Search:
        """A search in this setting; `fields` are other ones of the search."""
        steps = fields.get("steps", self.steps)
        usual = {
            **self._task(),
            "steps": steps,
            "interval": max(1, steps // self.num_reports),
            "seeds": self.scale.pick(smoke=1, cpu=5, paper=paper_seeds),
        }
        return tp.Search(
            **{**usual, **fields},
            notes=after_question(docstring) + ("" if self.harder else AT_CPU),
            arms=on_gpus(self.scale, 0.5, arms),
        )

    def _task(self) -> dict[str, Any]:
        sizes: dict[str, Any] = {"pool": 2, "num_train": 5000, "num_val": 1000, "num_test": 5000}
        small = tp.nets.DigitsCnn(channels=(8, 16), hidden=32)
        adam, cosine = tp.Adam(lr=0.005), tp.Adam(lr=0.005, schedule="cosine")
        tasks: dict[str, tuple[Any, ...]] = {
            "smoke": (tp.data.Digits(num_train=200, num_val=100), tp.nets.DigitsCnn(), 20, adam),
            "cpu": (tp.data.Mnist(rotated=True, **sizes), small, 50, cosine),
            "paper": (tp.data.Cifar10(num_val=5000), tp.nets.ResNet18(), 256, SGD),
        }
        data, net, batch_size, optimiser = tasks[self.scale]
        if self.harder and self.scale is not tp.Scale.PAPER:
            optimiser = SGD
            net = tp.nets.ResNet18(width=self.scale.pick(smoke=2, cpu=8, paper=64))
        if self.harder and self.scale is tp.Scale.CPU:
            sizes |= {"num_train": 10_000, "num_val": 2000}
            data, batch_size = tp.data.Cifar10(**sizes), 100
        return {"data": data, "net": net, "batch_size": batch_size, "optimiser": optimiser}
