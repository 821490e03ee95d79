"""How a net is trained as Gaussians and fixed, as a config."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tuneparts.augment.fixed import FixedConfig
from tuneparts.config import Config
from tuneparts.pwfn import regulariser, rounds, sigma
from tuneparts.pwfn.controls import Control
from tuneparts.pwfn.quantisers import AnyQuantiser, Clusters
from tuneparts.training.learner import Context, Learner
from tuneparts.training.optimisers import OptimiserConfig
from tuneparts.training.supervised import SupervisedConfig


class SigmaConfig(Config):
    """Where standard deviations start, what pulls them up, and what clustering sees of them."""

    start: sigma.Form | float = "product"
    """By distance to powers of two (`product` or `upper`), or one number for all weights."""
    alpha: float = Field(default=2.0**-11, ge=0)
    """Strength of the pull; more of it compresses more."""
    cutoff: float = Field(default=0.05, gt=0)
    """S: no pull at or above it."""
    form: regulariser.Form = "squared"
    control: Control = "learnt"
    """`permuted` and `constant` test whether the places of deviations matter."""


class PwfnConfig(SupervisedConfig):
    """Pretraining, then rounds that train weights as Gaussians and fix ever more of them."""

    method: Literal["pwfn"] = "pwfn"
    augmentation: FixedConfig = FixedConfig()
    """Crop, flip and cutout of training images."""
    pretrain: float = Field(default=0.5, ge=0, lt=1)
    """Share of the passes for ordinary training, with `optimiser`."""
    pretrained: str | None = None
    """Checkpoint of a `standard` learner of the same net to start from, instead of pretraining."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the passes in which only deviations train, before the first round."""
    fractions: tuple[float, ...] = Field(default=rounds.FRACTIONS, min_length=1)
    """How much is fixed after each round; the last is 1."""
    first_round: float = Field(default=1 / 60, ge=0)
    """Length of the first round relative to each other one: a twentieth of one of three epochs."""
    quantiser: AnyQuantiser = Clusters()
    """What a round fixes, and to what: the method (`clusters`), or a baseline."""
    sigma: SigmaConfig = SigmaConfig()
    finetune: OptimiserConfig = OptimiserConfig(kind="sgd", lr=1e-3, weight_decay=1e-4)
    """Made anew for each round."""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the loss gradient after pretraining. The pull on deviations is added
    afterwards: a strong one would shrink the gradient of the loss."""
    recalibrate: int = Field(default=0, ge=0)
    """Batches from which BatchNorm statistics are taken anew after each fixing."""
    ensemble: int = Field(default=0, ge=0)
    """Draws of the weights in a final ensemble on test data."""

    @field_validator("fractions")
    @classmethod
    def _rise_to_one(cls, fractions: tuple[float, ...]) -> tuple[float, ...]:
        rises = all(a < b for a, b in zip((0.0, *fractions), fractions, strict=False))
        if not rises or fractions[-1] != 1:
            raise ValueError(f"fractions rise from above 0 to exactly 1, but got {fractions}")
        return fractions

    @model_validator(mode="after")
    def _consistent(self) -> Self:
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
        given = self.sigma != SigmaConfig() or self.warmup > 0 or self.ensemble > 0
        if given and not self.quantiser.uses_sigma:
            raise ValueError(
                f"`{self.quantiser.kind}` has no standard deviations: leave `sigma`, `warmup` and "
                "`ensemble` at their defaults"
            )
        return self

    def build(self, context: Context) -> Learner:
        from tuneparts.pwfn.learner import PwfnLearner

        return PwfnLearner(self, context)
