"""The settings of ensembles that are trained as one; nothing here imports torch.

Each class says what its method is; the module of the same name has the learner.
"""

from typing import Literal

from pydantic import Field, field_validator

from tuneparts.nets import DigitsCnn, MsdNet, Net
from tuneparts.training.config import EnsembleMethod

FastStart = Literal["signs", "normal"]


class DeepEnsemble(EnsembleMethod):
    """Independent nets of any kind; with one member it is ordinary training of one net."""

    method: Literal["deep_ensemble"] = "deep_ensemble"
    learner = "tuneparts.methods.ensembles._deep:DeepEnsembleLearner"
    members: tuple[Net, ...] = Field(default=(DigitsCnn(),) * 4, min_length=1)
    """The net of each member."""
    parameter_budget: int | None = Field(default=None, gt=0)
    """Most parameters of all members together; members are narrowed to fit. None for no bound."""
    batches: Literal["shared", "own"] = "shared"
    """Whether members see the same batches, or each its own: another order and other draws of the
    augmentation, as nets that are trained apart do."""


class BatchEnsemble(EnsembleMethod):
    """One net, with fast weights for each member."""

    method: Literal["batch_ensemble"] = "batch_ensemble"
    learner = "tuneparts.methods.ensembles._batch_ensemble:BatchEnsembleLearner"
    net: Net = DigitsCnn()
    """Which net all members share."""
    num_members: int = Field(default=4, ge=1)
    """Members of the ensemble."""
    member_norms: bool = False
    """Give each member BatchNorm layers of its own."""
    fast_lr_factor: float = Field(default=0.5, gt=0)
    """Learning rate of the fast weights relative to the others; they are not decayed."""
    fast_start: FastStart = "signs"
    """What fast weights start as: random signs (Wen et al. 2020), or draws from N(1, 0.5), by which
    the published figures of a Wide ResNet were made (Nado et al. 2021)."""


class Mimo(EnsembleMethod):
    """One net with M inputs and M heads."""

    method: Literal["mimo"] = "mimo"
    learner = "tuneparts.methods.ensembles._mimo:MimoLearner"
    net: Net = DigitsCnn()
    """Which net all members share."""
    num_members: int = Field(default=3, ge=1)
    """Members of the ensemble."""
    batch_repetitions: int = Field(default=1, ge=1)
    """How often each example is in a step, each time with others."""


class Slimmable(EnsembleMethod):
    """The same net at several widths."""

    method: Literal["slimmable"] = "slimmable"
    learner = "tuneparts.methods.ensembles._slimmable:SlimmableLearner"
    members: tuple[Net, ...] = Field(
        default=(DigitsCnn(), DigitsCnn(channels=(8, 16), hidden=32)), min_length=1
    )
    """The widest first; the others have the same layers with fewer channels."""


class UniversallySlimmable(EnsembleMethod):
    """A net, and the widths at which it is scored."""

    method: Literal["universally_slimmable"] = "universally_slimmable"
    learner = "tuneparts.methods.ensembles._slimmable:UniversallySlimmableLearner"
    net: Net = DigitsCnn()
    """The net at full width."""
    widths: tuple[float, ...] = Field(default=(1.0, 0.5), min_length=2)
    """Members, as multiples of the full width: 1 first, then ever narrower."""
    num_trained: int = Field(default=4, ge=2)
    """Widths that each step trains, the widest and the narrowest among them."""
    recalibrate: int = Field(default=20, gt=0)
    """Batches from which the statistics of every member are taken before it is scored."""
    classes_only = "its narrow nets learn the probabilities of the widest one"

    @field_validator("widths")
    @classmethod
    def _check_widths(cls, widths: tuple[float, ...]) -> tuple[float, ...]:
        falls = all(a > b for a, b in zip(widths, (*widths[1:], 0.0), strict=True))
        if widths[0] != 1 or not falls:
            raise ValueError(f"widths fall from exactly 1 to above 0, but got {widths}")
        return widths


class MsdNetEnsemble(EnsembleMethod):
    """A net with several exits."""

    method: Literal["msdnet"] = "msdnet"
    learner = "tuneparts.methods.ensembles._msdnet:MsdNetLearner"
    sizes: MsdNet = MsdNet(
        exits=2, base=1, step=1, channels=4, growth=4,
        growth_factors=(1, 2), bottleneck_factors=(1, 2), exit_channels=16,
    )  # fmt: skip
    """Layers, channels and exits of the net; small by default, `MsdNet()` is the published one."""


class Hne(EnsembleMethod):
    """A tree whose leaves are members of one kind of net."""

    method: Literal["hne"] = "hne"
    learner = "tuneparts.methods.ensembles._hne:HneLearner"
    net: Net = DigitsCnn()
    """The net of each member, an `nn.Sequential`; it is cut where its blocks cost most alike."""
    levels: int = Field(default=2, ge=1)
    """B: how often branches part in two."""
    alpha: float = Field(default=0.5, ge=0, lt=1)
    """Weight of what small ensembles learn from the full one, against labels."""
    classes_only = "its small ensembles learn the probabilities of the full one"

    @property
    def num_members(self) -> int:
        """Leaves of the tree."""
        return int(2**self.levels)
