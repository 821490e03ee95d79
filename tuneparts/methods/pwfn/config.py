"""The settings of PWFN and of what it is compared with; nothing here imports torch."""

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from tuneparts.core.config import Config
from tuneparts.data.task import Task
from tuneparts.hypers.config import Augmentation
from tuneparts.training import check
from tuneparts.training.config import AnyOptimiser, Sgd, SupervisedMethod

FRACTIONS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1.0)
"""Share of weights that is fixed after each of the ten published rounds."""
StartForm = Literal["product", "upper"]
"""What the third quartile is taken of: the `product` of both relative distances, as in the authors'
code, or the distance to the `upper` power of two, as printed in the appendix."""

PullForm = Literal["squared", "hinge"]
"""`squared`: sum of |eps| / 2 * relu(S - sigma)^2, as in the authors' code; `hinge`: sum of
relu(S - sigma), a constant pull below the cutoff S."""

Control = Literal["learnt", "permuted", "constant"]
"""`learnt` as they are; `permuted` among the free weights; `constant` at the free ones' median."""


class _Quantiser(Config):
    """Base of the quantisers, which choose the weights that a round fixes, and their values."""

    uses_sigma: ClassVar[bool] = False
    """Whether training samples weights and learns their standard deviations."""


class _Clusters(_Quantiser):
    """PWFN: the centre within whose reach most weights lie takes them, one centre after another.

    Reach is a distance in standard deviations: |c - mu| / sigma.
    """

    uses_sigma: ClassVar[bool] = True
    kind: Literal["clusters"] = "clusters"
    """Which rule chooses the values that weights are fixed on."""
    bits: int = Field(default=7, ge=0, le=16)
    """The smallest power of two is 2^-bits."""
    max_order: int = Field(default=4, ge=1, le=8)
    """Most powers of two in a sum."""
    delta: float = Field(default=1.0, gt=0)
    """The first threshold of a round, in standard deviations."""
    growth: float = Field(default=2.0, gt=1)
    """Factor by which the threshold grows when nothing is within it."""
    zero_rule: bool = True
    """Weights below 2^-bits are at no distance from 0."""
    rule: Literal["threshold", "running_mean"] = "threshold"
    """`threshold` as in the authors' code, `running_mean` as in the printed algorithm."""
    distance: Literal["sigma", "relative"] = "sigma"
    """In standard deviations (`sigma`), or `relative` to the weight itself as in WFN."""
    monotone: bool = False
    """Keep what is fixed; otherwise every round clusters all weights anew, as the authors' code."""

    @model_validator(mode="after")
    def _check_rules_agree(self) -> Self:
        if self.distance == "relative" and self.delta >= 1:
            raise ValueError(
                f"`delta` = {self.delta}: `delta < 1` must hold with `distance = relative`, where "
                "every weight is at distance 1 from 0. WFN used 0.0075 to 0.015"
            )
        if self.rule == "running_mean" and not self.monotone:
            raise ValueError(
                "the printed algorithm keeps what is fixed: set `monotone` with `running_mean`. "
                "Its clusters are wide, and clustered anew weights walk from centre to centre"
            )
        return self


class _Nearest(_Quantiser):
    """Rounding to the nearest centre of the same grid, closest weights first."""

    kind: Literal["nearest"] = "nearest"
    bits: int = Field(default=7, ge=0, le=16)
    max_order: int = Field(default=4, ge=1, le=8)
    """1 allows powers of two only."""
    zero_rule: bool = True


class _KMeans(_Quantiser):
    """A codebook of arbitrary values: k-means over all weights of the net, anew in each round."""

    kind: Literal["kmeans"] = "kmeans"
    num_values: int = Field(default=64, ge=1)


class _Wfn(_Quantiser):
    """Weight Fixing Networks (Subia-Waud & Dasmahapatra 2022).

    Clusters by relative distances, with a bound that is loose in early rounds, and a term of the
    loss (`wfn.attraction`) that draws free weights to the centres found so far.
    """

    kind: Literal["wfn"] = "wfn"
    delta: float = Field(default=0.01, gt=0, lt=1)
    """Relative distance that a weight may move on average in the last round; in the one before it
    twice as far, and so on."""
    bits: int = Field(default=7, ge=0, le=16)
    """Weights below 2^-bits are fixed to 0."""
    max_order: int = Field(default=21, ge=1, le=21)
    """Most signed powers of two in a sum."""
    ratio: float = Field(default=0.4, ge=0)
    """Size of the term that draws free weights to centres, relative to the task's loss."""
    temperature: float = Field(default=0.05, gt=0)
    """How much centres other than the relatively nearest one draw."""


class _Uniform(_Quantiser):
    """Integers from -(2^(bits-1) - 1) to 2^(bits-1) - 1, times one scale per output channel.

    The scale makes the largest weight of a channel the largest integer. Biases have one scale and
    at least 8 bits. All weights are rounded at once, by `rounded`, after the last step.
    """

    kind: Literal["uniform"] = "uniform"
    bits: int = Field(default=8, ge=2, le=8)
    aware: bool = False
    """Whether training computes with rounded weights, and gradients pass straight through to those
    behind them (quantisation-aware training); otherwise it is post-training quantisation."""


class _Free(_Quantiser):
    """No fixing: weights stay as they are, after the same schedule of rounds."""

    kind: Literal["free"] = "free"


AnyQuantiser: TypeAlias = Annotated[
    _Clusters | _Nearest | _KMeans | _Wfn | _Uniform | _Free, Field(discriminator="kind")
]


class SigmaConfig(Config):
    """Standard deviations: how they start, how strongly they grow, and what clustering sees."""

    start: StartForm | float = "product"
    """By distance to powers of two (`product` or `upper`), or one number for all weights."""
    alpha: float = Field(default=2.0**-11, ge=0)
    """Strength of the pull that makes deviations grow; more of it compresses more."""
    exposure: float | None = Field(default=None, gt=0)
    """Instead of `alpha`: time constants of the pull over all steps after pretraining, from which
    alpha follows. It does not depend on the length of a run; the authors' on ImageNet was 0.95."""
    cutoff: float = Field(default=0.05, gt=0)
    """S: deviations at or above it are not pulled."""
    form: PullForm = "squared"
    """`squared` pulls deviations the more, the further below the cutoff; `hinge` all alike."""
    control: Control = "learnt"
    """`permuted` and `constant` test whether it matters which weight has which deviation."""

    @model_validator(mode="after")
    def _check_one_strength(self) -> Self:
        if self.exposure is not None and "alpha" in self.model_fields_set:
            given = f"`alpha` = {self.alpha} and `exposure` = {self.exposure}"
            raise ValueError(f"{given}: alpha follows from `exposure`, give one of them")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_what_follows(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tree: dict[str, Any] = handler(self)
        if self.exposure is not None:
            tree.pop("alpha", None)
        return tree


class Pwfn(SupervisedMethod):
    """Pretraining, then rounds that train weights as Gaussians and fix ever more of them."""

    method: Literal["pwfn"] = "pwfn"
    learner = "tuneparts.methods.pwfn._learner:PwfnLearner"
    augmentation: Augmentation = Augmentation()
    """Crop, flip and cutout of training images."""
    pretrain: float = Field(default=0.5, ge=0, lt=1)
    """Share of the steps for ordinary training, with `optimiser`."""
    pretrained: str | None = None
    """Weights of the same net to start from, instead of pretraining: a checkpoint of a trial, a
    `state_dict`, a file of `compress`, or `torchvision:NAME` with weights on this machine."""
    shares_pretraining: bool = False
    """Whether trials of one seed whose pretraining is the same train it once, and the others load
    the result. All of it is then one interval, and counts as steps of each of them."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps in which only deviations train, before the first round."""
    fractions: tuple[float, ...] = Field(default=FRACTIONS, min_length=1)
    """Share of the weights that is fixed after each round; the last is 1."""
    first_round: float = Field(default=1 / 60, ge=0)
    """Length of the first round relative to each other one: a twentieth of one of three epochs."""
    quantiser: AnyQuantiser = _Clusters()
    """Chooses which weights a round fixes, and to which values: PWFN (`clusters`) or a baseline."""
    sigma: SigmaConfig = SigmaConfig()
    finetune: AnyOptimiser = Sgd(lr=1e-3, weight_decay=1e-4)
    """Optimiser after pretraining, made anew for each round."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the loss gradient after pretraining; the pull on deviations comes on top."""
    habits: Literal["careful", "released"] = "careful"
    """`released` as in the authors' code, to follow its published digits: fixed deviations are
    pulled on, weight decay moves fixed weights until the next round, and gradients are clipped
    after the pull was added."""
    recalibrate: int = Field(default=0, ge=0)
    """Batches from which BatchNorm statistics are taken anew after each fixing."""
    ensemble: int = Field(default=0, ge=0)
    """Draws of the weights in a final ensemble on test data."""

    @field_validator("fractions")
    @classmethod
    def _check_fractions(cls, fractions: tuple[float, ...]) -> tuple[float, ...]:
        rises = all(a < b for a, b in zip((0.0, *fractions), fractions, strict=False))
        if not rises or fractions[-1] != 1:
            raise ValueError(f"fractions rise from above 0 to exactly 1, but got {fractions}")
        return fractions

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        if self.pretrain + self.warmup >= 1:
            given = f"`pretrain` = {self.pretrain} and `warmup` = {self.warmup}"
            raise ValueError(f"{given}: their sum must be below 1, so that rounds have steps")
        if self.pretrained is not None and self.pretrain > 0:
            given = f"`pretrain` = {self.pretrain} with `pretrained`"
            raise ValueError(f"{given}: such a net is not pretrained again, set `pretrain` to 0")
        if self.sigma.exposure is not None and not isinstance(self.finetune, Sgd):
            given = f"`sigma.exposure` with `finetune.kind` = {self.finetune.kind}"
            raise ValueError(f"{given}: it is defined for SGD, give `sigma.alpha`")
        if isinstance(self.quantiser, _Uniform) and len(self.fractions) > 1:
            given = f"`fractions` = {self.fractions}"
            raise ValueError(f"{given}: `uniform` rounds all weights at once, set it to (1.0,)")
        asks_for_sigma = self.sigma != SigmaConfig() or self.warmup > 0 or self.ensemble > 0
        if asks_for_sigma and not self.quantiser.uses_sigma:
            raise ValueError(
                f"`{self.quantiser.kind}` has no standard deviations: leave `sigma`, `warmup` and "
                "`ensemble` at their defaults"
            )
        return self

    def exposure(self, *, alpha: float, steps: int) -> float:
        """X such that a flat weight's deviation has gone 1 - exp(-X) of the way to S, under SGD."""
        mean_abs_eps = math.sqrt(2 / math.pi)
        rate = self.finetune.lr / (1 - getattr(self.finetune, "momentum", 0))
        return rate * alpha * mean_abs_eps * steps

    def strength(self) -> float:
        """The pull's alpha: as given, or by the exposure that is asked for."""
        if self.sigma.exposure is None:
            return self.sigma.alpha
        return self.sigma.exposure / self.exposure(alpha=1.0, steps=self.rounds().num_fixing)

    def rounds(self) -> "Rounds":
        """When each stage ends; rounds too short for a step end where the round before does.

        Example:
            >>> Pwfn(steps=100, first_round=0.5, fractions=(0.2, 0.5, 1)).rounds()
            Rounds(pretrain_end=50, warmup_end=50, ends=(60, 80, 100))
        """
        warmup_end = round((self.pretrain + self.warmup) * self.steps)
        others = [1.0] * (len(self.fractions) - 1)
        lengths = list(accumulate([self.first_round if others else 1.0, *others]))
        rest = self.steps - warmup_end
        ends = [warmup_end + round(rest * length / lengths[-1]) for length in lengths]
        return Rounds(round(self.pretrain * self.steps), warmup_end, tuple(ends))

    def measurable(self) -> tuple[Self, int]:
        shared = self.rounds().pretrain_end if self.shares_pretraining else 0
        return self.replaced({"shares_pretraining": False, "pretrain": 0.0}), shared

    def check(self, task: Task | None = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if task is not None and self.ensemble:
            check.refuse_target(self, task, "its `ensemble` averages probabilities")


@dataclass(frozen=True)
class Rounds:
    """Steps at which pretraining, warm-up and each round end."""

    pretrain_end: int
    warmup_end: int
    ends: tuple[int, ...]
    """End of each round, where it fixes weights; the last is the whole budget."""

    @property
    def num_fixing(self) -> int:
        """Steps after pretraining."""
        return self.ends[-1] - self.pretrain_end
