"""The setting of the searches about sharing weights between members: data, training and seeds.

`paper` follows Teterwak et al. (2024): CIFAR-100, SGD for 200 epochs of batches of 128, and before
them, where clusters are learnt, twenty epochs to search and one to compare the gradients of layers.
`cpu` is 800 rotated MNIST digits of 14 x 14 pixels with 2,000 test images; `smoke`
rotated digits of 8 x 8 pixels, which come with scikit-learn.
"""

from typing import Any

from tuneparts.core.config import Config
from tuneparts.data.config import Data
from tuneparts.hypers.config import Augmentation
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import NetConfig, WideResNet
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.spec import Scale, Search
from tuneparts.training.config import Method

EPOCH = 50_000 // 128
"""Steps."""
MIXED_EPOCHS = 222
"""Twenty to search, one to compare layers, two hundred to train, one to compare uses."""
MIXED_MILESTONES = (61 / 201, 121 / 201, 161 / 201)
"""60, 120 and 160 epochs of training, of which the comparison of uses is one more."""

INITIALISATION = {"initialisation": "fan_in"}
"""Of all templates in these searches: that of He et al. (2015), as Wide ResNets have it."""

DIFFERENCES = """
In every search of this setting: templates start at the scale of He et al. (2015), where the
released code draws all of them with a variance of 2 / 9; clusters are united over the layers of all
members (Algorithm 1), where that code relabels those of the first (`sharing.scope="released"`
follows it); crops are padded with the mean colour; norms see whole batches, where the paper's equal
members train on two devices whose norms see half of one.
"""
"""What differs from the paper or its code in all of these searches, for their notes."""

BY_GRADIENTS = {"clusters": "gradient", "coefficients": "mapped", "tau": 0.1, "beta": 0.9}
"""Sharing of members of different shape, with the thresholds of the paper for CIFAR-100."""

CIFAR10_BETA = {"widths": 0.95, "depths": 0.5}
"""The paper's beta on CIFAR-10, for members of several widths and of several depths and widths."""


def wide_resnets(*sizes: tuple[int, float]) -> tuple[WideResNet, ...]:
    """One net for each (depth, width)."""
    return tuple(WideResNet(depth=depth, width=width) for depth, width in sizes)


def apart(**fields: Any) -> DeepEnsemble:
    """Members that share neither weights nor batches, as nets that are trained apart.

    Args:
        fields: of the config.
    """
    return DeepEnsemble(batches="own", **fields)


class Sharing(Config):
    """One scale of the setting."""

    scale: Scale
    cpu_steps: int = 120
    """At `cpu` scale, in four reports."""
    small_lr: float = 0.1
    """Learning rate at the smaller scales; the published one is 0.1."""

    @property
    def is_paper(self) -> bool:
        """Whether this is the published setting."""
        return self.scale is Scale.PAPER

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
        """Fields of the config of any method with members.

        Args:
            epochs: at `paper` scale, as `milestones` and `cutout`.
            milestones: fractions of training at which the rate falls to a fifth.
            cutout: whether images have a hole besides being shifted and flipped.
            holds_out: whether validation data is kept at `paper` scale too.
        """
        lr = 0.1 if self.is_paper else self.small_lr
        optimiser = {"kind": "sgd", "lr": lr, "nesterov": True, "weight_decay": 5e-4}
        steps = {"schedule": "steps", "milestones": milestones}
        fixed = Augmentation(crop_padding=4, flip=True, cutout=16 if cutout else 0)
        return {
            "steps": self.steps(epochs),
            "interval": self.scale.pick(smoke=12, cpu=self.cpu_steps // 4, paper=EPOCH),
            "batch_size": self.scale.pick(smoke=32, cpu=50, paper=128),
            "optimiser": optimiser | (steps if self.is_paper else {"schedule": "cosine"}),
            "augmentation": fixed if self.is_paper else Augmentation(),
            "train_on": "all" if self.is_paper and not holds_out else "train",
        }

    def mixed_training(self, **fields: Any) -> dict[str, Any]:
        """Like `training`, for members of different shape, whose uses are compared and untied."""
        return self.training(
            epochs=MIXED_EPOCHS, milestones=MIXED_MILESTONES, cutout=True, **fields
        )

    def gradient_shared(
        self,
        members: tuple[NetConfig, ...],
        budget: int,
        *,
        holds_out: bool = False,
        beta: float = 0.9,
    ) -> SuperWeights:
        """Members of different shape whose clusters and coefficients are found by gradients.

        Args:
            members: configs of the nets.
            budget: template weights of all of them together.
            holds_out: as in `training`.
            beta: above which uses stay tied.
        """
        return SuperWeights(
            **self.mixed_training(holds_out=holds_out),
            members=members,
            allocation={"budget": budget, **INITIALISATION},
            sharing={**BY_GRADIENTS, "beta": beta},
            stages=self.stages(),
        )

    def longer(self) -> dict[str, Any]:
        """Changes to `training` for mixed members at `paper` scale; none at the others."""
        if not self.is_paper:
            return {}
        return {
            "steps": MIXED_EPOCHS * EPOCH,
            "optimiser.milestones": MIXED_MILESTONES,
            "augmentation.cutout": 16,
        }

    def as_published(self) -> dict[str, Any]:
        """Changes to `training` for BatchEnsemble and MIMO at `paper` scale; none at the others.

        Those of the code by which their published figures were made (Nado et al. 2021): 250 epochs,
        a fifth of the rate from 0.4, 0.8 and 0.9 of them on, an epoch of warm-up, and 3e-4 times
        the squared weights as a penalty, which is a decay of 6e-4 as it is written here.
        """
        if not self.is_paper:
            return {}
        return {
            "steps": 250 * EPOCH,
            "optimiser.milestones": (0.4, 0.8, 0.9),
            "optimiser.warmup": 1 / 250,
            "optimiser.weight_decay": 6e-4,
        }

    def stages(self, *, epochs: int = MIXED_EPOCHS, unties: bool = True) -> dict[str, Any]:
        """Lengths of the stages as fractions: search, untie and analysis."""
        if not self.is_paper:
            found = {"search": 0.1, "untie": 0.05, "analysis": 0.03, "norms": "train"}
        else:
            found = {"search": 20 / epochs, "untie": 10 / epochs, "analysis": 1 / epochs}
        return {key: value for key, value in found.items() if unties or key != "untie"}

    def arm(self, name: str, config: Method, *, note: str = "", **fields: Any) -> Arm:
        """An arm with the resources of this scale; the note is for `paper` scale only."""
        return Arm(
            name=name,
            config=config,
            resources=Resources(gpus=1 if self.is_paper else 0),
            budget_note=note if self.is_paper else "",
            **fields,
        )

    def search(self, name: str, *, holds_out: bool = False, **fields: Any) -> Search:
        """A search in this setting, selected by validation likelihood.

        Args:
            name: of the search.
            holds_out: as in `training`.
            fields: of the `Search`; its data, where it is other data.
        """
        data = self.scale.pick(
            smoke=Data(name="digits", rotated=True, num_train=200, num_val=100),
            cpu=Data(
                name="mnist", rotated=True, pool=2, num_train=800, num_val=1000, num_test=2000
            ),
            paper=Data(name="cifar100", num_val=5000) if holds_out else Data(name="cifar100"),
        )
        return Search(
            **{
                "name": name,
                "scale": self.scale,
                "data": data,
                "metric": "val/nll",
                "seeds": self.scale.pick(smoke=(0,), cpu=(0, 1, 2, 3, 4), paper=(0, 1, 2)),
                **fields,
                "notes": fields["notes"] + DIFFERENCES,
            }
        )
