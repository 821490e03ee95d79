"""The settings of ensembles that are trained as one; nothing here imports torch.

Each class says what its method is; the module of the same name has the learner.
"""

from typing import Literal

from pydantic import Field, field_validator

from tuneparts.models import DigitsCnn, MsdNet, Net
from tuneparts.training.config import MembersConfig
from tuneparts.training.learner import Context, Learner

FastStart = Literal["signs", "normal"]


class DeepEnsembleConfig(MembersConfig):
    """Independent nets of any kind; with one member it is ordinary training of one net.

    Example:
        >>> len(DeepEnsembleConfig(members=("mlp", "digits_cnn")).members)
        2
    """

    method: Literal["deep_ensemble"] = "deep_ensemble"
    members: tuple[Net, ...] = Field(
        default=("digits_cnn",) * 4, min_length=1, validate_default=True
    )
    """The net of each member."""
    parameter_budget: int | None = Field(default=None, gt=0)
    """Most parameters of all members together; members are narrowed to fit. None for no bound."""
    batches: Literal["shared", "own"] = "shared"
    """Whether members see the same batches, or each its own: another order and other draws of the
    augmentation, as nets that are trained apart do."""

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.deep import DeepEnsembleLearner

        return DeepEnsembleLearner(self, context)


class BatchEnsembleConfig(MembersConfig):
    """One net, with fast weights for each member.

    Example:
        >>> BatchEnsembleConfig(net="mlp", num_members=8).num_members
        8
    """

    method: Literal["batch_ensemble"] = "batch_ensemble"
    net: Net = Field(default="digits_cnn", validate_default=True)
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

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.batch_ensemble import BatchEnsembleLearner

        return BatchEnsembleLearner(self, context)


class MimoConfig(MembersConfig):
    """One net with M inputs and M heads.

    Example:
        >>> MimoConfig(net="mlp", num_members=2).batch_repetitions
        1
    """

    method: Literal["mimo"] = "mimo"
    net: Net = Field(default="digits_cnn", validate_default=True)
    """Which net all members share."""
    num_members: int = Field(default=3, ge=1)
    """Members of the ensemble."""
    batch_repetitions: int = Field(default=1, ge=1)
    """How often each example is in a step, each time beside others."""

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.mimo import MimoLearner

        return MimoLearner(self, context)


class SlimmableConfig(MembersConfig):
    """The same net at several widths.

    Example:
        >>> len(SlimmableConfig().members)
        2
    """

    method: Literal["slimmable"] = "slimmable"
    members: tuple[Net, ...] = Field(
        default=("digits_cnn", {"name": "digits_cnn", "channels": (8, 16), "hidden": 32}),
        min_length=1,
        validate_default=True,
    )
    """The widest first; the others have the same layers with fewer channels."""

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.slimmable import SlimmableLearner

        return SlimmableLearner(self, context)


class UniversallySlimmableConfig(MembersConfig):
    """A net, and the widths at which it is scored.

    Example:
        >>> UniversallySlimmableConfig(widths=(1.0, 0.75, 0.5)).num_trained
        4
    """

    method: Literal["universally_slimmable"] = "universally_slimmable"
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

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.slimmable import UniversallySlimmableLearner

        return UniversallySlimmableLearner(self, context)


class MsdNetConfig(MembersConfig):
    """A net with several exits.

    Example:
        >>> MsdNetConfig(sizes={"exits": 7}).sizes.layers
        (4, 2, 2, 2, 2, 2, 2)
    """

    method: Literal["msdnet"] = "msdnet"
    sizes: MsdNet = MsdNet(
        exits=2,
        base=1,
        step=1,
        channels=4,
        growth=4,
        growth_factors=(1, 2),
        bottleneck_factors=(1, 2),
        exit_channels=16,
    )
    """Layers, channels and exits of the net; small by default, `MsdNet()` is the published one."""

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.msdnet import MsdNetLearner

        return MsdNetLearner(self, context)


class HneConfig(MembersConfig):
    """A tree whose leaves are members of one kind of net.

    Example:
        >>> HneConfig(levels=3).num_members
        8
    """

    method: Literal["hne"] = "hne"
    net: Net = Field(default="digits_cnn", validate_default=True)
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

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.ensembles.hne import HneLearner

        return HneLearner(self, context)
