"""The setting of the searches about sharing weights between members.

`paper` follows Teterwak et al. (2024): CIFAR-100, SGD for 200 epochs of batches of 128, and before
them, where clusters are learnt, twenty epochs to search and one to compare the gradients of layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tuneparts as tp
from studies import after_question, on_gpus

EPOCH = 50_000 // 128
"""Steps."""
MIXED_EPOCHS = 222
"""Twenty to search, one to compare layers, two hundred to train, one to compare uses."""
MIXED_MILESTONES = (61 / 201, 121 / 201, 161 / 201)
"""60, 120 and 160 epochs of training, of which the comparison of uses is one more."""
CUTOUT: dict[str, Any] = {"milestones": (0.3, 0.6, 0.8), "cutout": True}
"""Of `training`, for nets that are compared with members of different shape."""
SEARCHED_EPOCHS = 221
"""Twenty of training with hard sharing, one to compare gradients of layers, two hundred more."""
NOTE = f"{MIXED_EPOCHS - 200} epochs of search and analysis"
SEARCHED_NOTE = "epochs of search and analysis besides the training"
INITIALISATION = {"initialisation": "fan_in"}
"""Of all templates in these searches: that of He et al. (2015), as Wide ResNets have it."""
DIFFERENCES = """
In every search of this setting: templates start at the scale of He et al. (2015), where the
released code draws all of them with a variance of 2 / 9; clusters are united over the layers of all
members (Algorithm 1), where that code relabels those of the first (`sharing.scope="released"`
follows it); crops are padded with the mean colour; norms see whole batches, where the paper's equal
members train on two devices whose norms see half of one. `cpu` scale has 800 rotated MNIST digits
of 14 x 14 pixels, unless said otherwise, and norms of the batch in the gradient analysis.
"""
PRIVATE = {"clusters": "depth", "coefficients": "private"}
"""Sharing of equal members: those at one depth share templates, and each has coefficients."""
BY_GRADIENTS = {"clusters": "gradient", "coefficients": "mapped", "tau": 0.1, "beta": 0.9}
"""Sharing of members of different shape, with the thresholds of the paper for CIFAR-100."""
CIFAR10_BETA = {"widths": 0.95, "depths": 0.5}
"""The paper's beta on CIFAR-10, for members of several widths and of several depths and widths."""
AT_RANDOM = {"sharing.clusters": "random"}
LONGER = {
    "steps": MIXED_EPOCHS * EPOCH,
    "optimiser.milestones": MIXED_MILESTONES,
    "augmentation.cutout": 16,
}
"""Changes to `training` for members of different shape."""

apart = partial(tp.methods.DeepEnsemble, batches="own")
"""Members that share neither weights nor batches, as nets that are trained apart."""


def wide_resnets(*sizes: tuple[int, float]) -> tuple[Any, ...]:
    """One net for each (depth, width)."""
    return tuple(tp.nets.WideResNet(depth=depth, width=width) for depth, width in sizes)


def of_widths(scale: tp.Scale, *paper: float) -> tuple[Any, ...]:
    """Wide ResNets of several widths; at `paper` scale these, 28 layers deep."""
    return scale.pick(
        smoke=wide_resnets((10, 1.5), (10, 1.1)),
        cpu=wide_resnets((16, 1.75), (16, 1.25), (16, 1.1)),
        paper=wide_resnets(*((28, width) for width in paper)),
    )


def of_depths(scale: tp.Scale) -> tuple[Any, ...]:
    """Wide ResNets of several depths and widths."""
    return scale.pick(
        smoke=wide_resnets((16, 1.1), (10, 1.1)),
        cpu=wide_resnets((16, 1.75), (16, 1.1), (10, 1.75), (10, 1.1)),
        paper=wide_resnets((28, 7), (28, 4), (16, 7), (16, 4)),
    )


@dataclass(frozen=True)
class Sharing:
    """One scale of the setting."""

    scale: tp.Scale
    cpu_steps: int = 120
    """At `cpu` scale, in four reports."""
    small_lr: float = 0.1
    """Learning rate at the smaller scales; the published one is 0.1."""

    @property
    def is_paper(self) -> bool:
        return self.scale is tp.Scale.PAPER

    def steps(self, epochs: int = 200) -> int:
        """Steps of a trial; epochs are counted at `paper` scale only."""
        return self.scale.pick(smoke=24, cpu=self.cpu_steps, paper=epochs * EPOCH)

    def training(
        self,
        *,
        epochs: int = 200,
        milestones: tuple[float, ...] = (0.3, 0.6, 0.9),
        cutout: bool = False,
        holds_out: bool = False,
    ) -> dict[str, Any]:
        """Fields of the config of any method with members; the arguments are for `paper` scale.

        The rate falls to a fifth at each milestone. `holds_out` keeps validation data there too.
        """
        lr = 0.1 if self.is_paper else self.small_lr
        sgd = tp.Sgd(lr=lr, nesterov=True, weight_decay=5e-4, schedule="cosine")
        steps = self.at_paper({"schedule": "steps", "milestones": milestones})
        augmentation = {"crop_padding": 4, "flip": True, "cutout": 16 if cutout else 0}
        return {
            "steps": self.steps(epochs),
            "interval": self.scale.pick(smoke=12, cpu=self.cpu_steps // 4, paper=EPOCH),
            "batch_size": self.scale.pick(smoke=32, cpu=50, paper=128),
            "optimiser": sgd.replaced(steps),
            "augmentation": self.at_paper(augmentation),
            "train_on": "all" if self.is_paper and not holds_out else "train",
        }

    def equal(
        self, members: Sequence[Any], *, common: Mapping[str, Any], **allocation: Any
    ) -> tp.SuperWeights:
        """Members of one shape that share by depth."""
        budget = {**allocation, **INITIALISATION}
        return tp.SuperWeights(**common, members=members, allocation=budget, sharing=PRIVATE)

    def searched(self, config: tp.SuperWeights, **changes: Any) -> tp.SuperWeights:
        """The same where clusters are learnt by gradients."""
        stages = self.stages(epochs=SEARCHED_EPOCHS, unties=False)
        steps = self.steps(SEARCHED_EPOCHS)
        learnt = {"stages": stages, "sharing.clusters": "gradient", "steps": steps}
        return config.replaced({**learnt, **changes})

    def gradient_shared(
        self, members: Sequence[Any], budget: int, *, holds_out: bool = False, beta: float = 0.9
    ) -> tp.SuperWeights:
        """Members of different shape whose clusters and coefficients are found by gradients."""
        mixed: dict[str, Any] = {
            "epochs": MIXED_EPOCHS,
            "milestones": MIXED_MILESTONES,
            "cutout": True,
        }
        return tp.SuperWeights(
            **self.training(**mixed, holds_out=holds_out),
            members=members,
            allocation={"budget": budget, **INITIALISATION},
            sharing={**BY_GRADIENTS, "beta": beta},
            stages=self.stages(),
        )

    def at_paper(self, changes: dict[str, Any]) -> dict[str, Any]:
        """These changes at `paper` scale, and none at the others."""
        return changes if self.is_paper else {}

    def stages(self, *, epochs: int = MIXED_EPOCHS, unties: bool = True) -> dict[str, Any]:
        """Lengths of the stages as fractions: search, untie and analysis."""
        found: dict[str, Any] = {"search": 0.1, "untie": 0.05, "analysis": 0.03, "norms": "train"}
        if self.is_paper:
            found = {"search": 20 / epochs, "untie": 10 / epochs, "analysis": 1 / epochs}
        return {key: value for key, value in found.items() if unties or key != "untie"}

    def noted(self, config: tp.Method, note: str = NOTE) -> tp.Arm:
        """An arm with a budget note, which is for `paper` scale only."""
        return tp.Arm(config=config, budget_note=note if self.is_paper else "")

    def search(
        self,
        docstring: str | None,
        arms: Mapping[str, tp.Method | tp.Arm],
        *,
        holds_out: bool = False,
        **fields: Any,
    ) -> tp.Search:
        """A search in this setting, selected by validation likelihood; `fields` are other ones."""
        sizes = {"pool": 2, "num_train": 800, "num_val": 1000, "num_test": 2000}
        data = self.scale.pick(
            smoke=tp.data.Digits(rotated=True, num_train=200, num_val=100),
            cpu=tp.data.Mnist(rotated=True, **sizes),
            paper=tp.data.Cifar100(num_val=5000 if holds_out else 0),
        )
        usual = {
            "data": data,
            "metric": "val/nll",
            "steps": self.steps(),
            "seeds": self.scale.pick(smoke=1, cpu=5, paper=3),
            "arms": on_gpus(self.scale, 1, arms),
        }
        return tp.Search(**{**usual, **fields}, notes=after_question(docstring) + DIFFERENCES)
