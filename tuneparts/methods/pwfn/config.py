"""The settings of PWFN and of what it is compared with."""

from typing import Literal, Self

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from tuneparts.data.task import Task
from tuneparts.hypers import FixedConfig
from tuneparts.methods.pwfn import fixing
from tuneparts.methods.pwfn import sigma as deviations
from tuneparts.methods.pwfn.quantisers import AnyQuantiser, Clusters, Uniform
from tuneparts.training import check
from tuneparts.training.config import OptimiserConfig, SupervisedConfig
from tuneparts.training.learner import Context, Learner


class PwfnConfig(SupervisedConfig):
    """Pretraining, then rounds that train weights as Gaussians and fix ever more of them.

    Example:
        >>> config = PwfnConfig(passes=400, quantiser={"kind": "nearest", "bits": 4})
        >>> config.quantiser.max_order
        4
    """

    method: Literal["pwfn"] = "pwfn"
    augmentation: FixedConfig = FixedConfig()
    """Crop, flip and cutout of training images."""
    pretrain: float = Field(default=0.5, ge=0, lt=1)
    """Share of the passes for ordinary training, with `optimiser`."""
    pretrained: str | None = None
    """Weights of the same net to start from, instead of pretraining: a checkpoint of a trial, a
    `state_dict`, a file of `compress`, or `torchvision:NAME` with weights on this machine."""
    shares_pretraining: bool = False
    """Whether trials of one seed whose pretraining is the same train it once, and the others load
    the result. All of it is then one interval, and counts as passes of each of them."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the passes in which only deviations train, before the first round."""
    fractions: tuple[float, ...] = Field(default=fixing.FRACTIONS, min_length=1)
    """Share of the weights that is fixed after each round; the last is 1."""
    first_round: float = Field(default=1 / 60, ge=0)
    """Length of the first round relative to each other one: a twentieth of one of three epochs."""
    quantiser: AnyQuantiser = Clusters()
    """Chooses which weights a round fixes, and to which values: PWFN (`clusters`) or a baseline."""
    sigma: deviations.SigmaConfig = deviations.SigmaConfig()
    finetune: OptimiserConfig = OptimiserConfig(kind="sgd", lr=1e-3, weight_decay=1e-4)
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
            raise ValueError(
                "`pretrain + warmup < 1` must hold, so that rounds have passes, "
                f"but got {self.pretrain} + {self.warmup}"
            )
        if self.pretrained is not None and self.pretrain > 0:
            raise ValueError(
                "a pretrained net is not pretrained again: set `pretrain` to 0, "
                f"but got {self.pretrain}"
            )
        if self.sigma.exposure is not None and self.finetune.kind != "sgd":
            raise ValueError(
                "`sigma.exposure` is defined for SGD, but `finetune.kind` is "
                f"{self.finetune.kind}: give `sigma.alpha`"
            )
        if isinstance(self.quantiser, Uniform) and len(self.fractions) > 1:
            raise ValueError(
                "`uniform` rounds all weights at once: set `fractions` to (1.0,), but got "
                f"{self.fractions}"
            )
        given = self.sigma != deviations.SigmaConfig() or self.warmup > 0 or self.ensemble > 0
        if given and not self.quantiser.uses_sigma:
            raise ValueError(
                f"`{self.quantiser.kind}` has no standard deviations: leave `sigma`, `warmup` and "
                "`ensemble` at their defaults"
            )
        return self

    def exposure(self, *, alpha: float, steps: int) -> float:
        """The exposure of deviations to the pull after this many passes of SGD."""
        return deviations.exposure(
            lr=self.finetune.lr, momentum=self.finetune.momentum, alpha=alpha, steps=steps
        )

    def strength(self) -> float:
        """The pull's alpha: as given, or by the exposure that is asked for."""
        if self.sigma.exposure is None:
            return self.sigma.alpha
        return self.sigma.exposure / self.exposure(alpha=1.0, steps=self.rounds().num_fixing)

    def rounds(self) -> fixing.Rounds:
        """When each stage ends."""
        return fixing.cut(
            self.passes,
            pretrain=self.pretrain,
            warmup=self.warmup,
            first_round=self.first_round,
            num_rounds=len(self.fractions),
        )

    def measurable(self) -> tuple[Self, int]:
        shared = self.rounds().pretrain_end if self.shares_pretraining else 0
        return self.replaced({"shares_pretraining": False, "pretrain": 0.0}), shared

    def check(self, task: Task | None = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if task is not None and self.ensemble:
            reason = "its `ensemble` averages probabilities"
            check.refuse_target(self, task, reason)

    def build(self, context: Context) -> Learner:
        from tuneparts.methods.pwfn.learner import PwfnLearner

        return PwfnLearner(self, context)
