"""What the methods that partitioned networks are compared with are given, without torch."""

import math
from importlib.util import find_spec
from typing import Literal, Self

from pydantic import Field, model_validator

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Task
from tuneparts.hypers import HyperGradient, Hypers
from tuneparts.hypers.config import Augmentation
from tuneparts.hypers.kinds import Affine, SchwoebelAffine, WeightPrior
from tuneparts.training.config import Finetune, SupervisedMethod

LINKED_STEPS = 4
"""An update, a hyperparameter step, and a derivative of the update that costs about two."""


class Standard(SupervisedMethod):
    """Ordinary training of one net at given hyperparameters."""

    method: Literal["standard"] = "standard"
    learner = "tuneparts.methods.baselines.standard:StandardLearner"
    takes_runtime = "compiled"
    augmentation: Augmentation = Augmentation()
    """Random crop, flip and cutout of training images; not learnt, off in evaluation."""
    penalises_weights = True

    @property
    def can_be_packed(self) -> bool:
        is_own = type(self).build is not Standard.build
        return not is_own and self.learner == Standard.learner


class _LearntConfig(SupervisedMethod):
    """One net and hyperparameters that are learnt at fixed weights, without a validation split."""

    takes_runtime = "compiled"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hyperparameters; `train` keeps it for selection."""

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights"


class Augerino(_LearntConfig):
    """Weights and affine widths learnt together, on all data, from the training loss."""

    method: Literal["augerino"] = "augerino"
    learner = "tuneparts.methods.baselines.standard:_AugerinoLearner"
    hypers: Hypers = Hypers(affine=Affine())
    """Must have learnable affine widths: `lila` or `benton`."""
    hyper_lr: float = Field(default=0.05, gt=0)
    """Adam's constant rate for the hyperparameters."""
    reg: float = Field(default=0.01, ge=0)
    """Reward per unit of the widths' norm."""
    safe: bool = True
    """No reward as long as any width is 10 or more; without it widths can run away."""

    @model_validator(mode="after")
    def _check_has_widths(self) -> Self:
        affine = self.hypers.affine
        if affine is None or affine.kind == "schwoebel" or "affine" in self.hypers.frozen:
            raise ValueError(
                "`hypers.affine`: Augerino learns affine widths, of kind `lila` or `benton`"
            )
        return self


class ValidationSet(SupervisedMethod):
    """A weight step and a hyperparameter step in turn, each on its own data."""

    method: Literal["validation"] = "validation"
    learner = "tuneparts.methods.baselines._validation:ValidationLearner"
    takes_runtime = "compiled"
    train_on: Literal["train", "all"] = "all"
    """The data that is split; `all` is as much as partitioned training sees."""
    holdout: float = Field(default=0.2, gt=0, lt=1)
    """Share of the data that only hyperparameters are learnt from."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hyperparameters. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Updates per hyperparameter step."""
    finetune: Finetune | None = None
    """Last stage on all data at frozen hyperparameters; None for no such stage."""
    through_step: bool = False
    """Learn hyperparameters by the gradient through the last step of the weights too; SGD only. A
    pair of steps costs four steps instead of two."""
    penalises_weights = True

    @model_validator(mode="after")
    def _check_step_is_differentiable(self) -> Self:
        if self.through_step and self.optimiser.kind != "sgd":
            raise ValueError(
                f"`optimiser.kind` = `{self.optimiser.kind}`: `through_step` differentiates a step "
                "of SGD. Set it to `sgd`."
            )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "through a step" if self.through_step else "fixed weights"


class Laplace(_LearntConfig):
    """Weights by their posterior's maximum, hyperparameters and prior by the evidence."""

    method: Literal["laplace"] = "laplace"
    learner = "tuneparts.methods.baselines._laplace:LaplaceLearner"
    curvature: Literal["diagonal", "kronecker"] = "diagonal"
    """The exact diagonal, for small nets only; or Kronecker factors, as Immer et al. (2022) have
    them, which cost less and fit nets of any size with linear layers, convolutions and norms over
    channels or features."""
    hyper_lr: float = Field(default=0.1, gt=0)
    """Adam's rate for the hyperparameters, and for the logarithms of the prior's precisions."""
    precision_lr: float | None = Field(default=None, ge=0)
    """A rate of their own for the precisions, 0 to hold them; None takes `hyper_lr`."""
    precision: float = Field(default=1.0, gt=0)
    """Where the prior's precision of every parameter tensor starts."""
    burn_in: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the steps before the first evidence step."""
    evidence_every: int = Field(default=20, gt=0)
    """Updates per evidence step."""
    evidence_batch: int = Field(default=32, gt=0)
    """Examples per evidence step."""
    memory: float = Field(default=0.9, ge=0, lt=1)
    """Share of the running mean of the curvature that one evidence step keeps."""
    lml_every: int = Field(default=1_000_000, gt=0)
    """Intervals between two evaluations of the evidence on all data; the last always has one."""
    max_gb: float = Field(default=2.0, gt=0)
    """Refuse to start if the Jacobians, or the factors, of one evidence step need more."""
    classes_only = "its curvature is that of a softmax"

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        return (*super().declared_metrics(), *WeightPrior().metrics("weight_prior"))

    def evidence_steps(self, num_classes: int) -> int:
        """What one evidence step costs."""
        if self.curvature == "diagonal":  # K backward passes, and twice as many for the gradient
            return 3 * num_classes
        # The same without gradients by weights: about K steps over as large a batch.
        return math.ceil(num_classes * self.evidence_batch / self.batch_size)

    @model_validator(mode="after")
    def _check_prior_and_likelihood(self) -> Self:
        if self.optimiser.weight_decay:
            raise ValueError(
                f"`optimiser.weight_decay` = {self.optimiser.weight_decay:g}: the learnt prior's "
                "precision is the weight decay. Set it to 0."
            )
        for name, hyper in self.hypers.parts.items():
            if hyper.place() == "loss" and hyper.enters_likelihood():
                raise ValueError(
                    "the curvature is that of the task's own likelihood, but "
                    f"`{name}` changes it. Leave it out, or use another method."
                )
        return self


class LastLayer(_LearntConfig):
    """Weights by their likelihood, hyperparameters of inputs by the evidence of the last layer."""

    method: Literal["last_layer"] = "last_layer"
    learner = "tuneparts.methods.baselines._last_layer:LastLayerLearner"
    hypers: Hypers = Hypers(affine=SchwoebelAffine(), samples=4)
    """Only hyperparameters that act on inputs."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hyperparameters. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Updates per hyperparameter step."""
    num_inducing: int = Field(default=100, gt=1)
    """Training examples whose features carry the posterior."""
    lengthscale: float = Field(default=1.0, gt=0)
    """Of the kernel, in units of the median distance between inducing features."""
    noise: float = Field(default=0.05, gt=0)
    """Variance of the Gaussian likelihood of one-hot labels."""
    memory: float = Field(default=0.9, ge=0, lt=1)
    """Share of the running mean of the statistics that one hyperparameter step keeps."""
    burn_in: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the steps before hyperparameters move, in which the net learns features."""
    classes_only = "its process has one output per class"

    @model_validator(mode="after")
    def _check_inputs_only(self) -> Self:
        for name, hyper in self.hypers.parts.items():
            if hyper.place() != "inputs":
                raise ValueError(
                    "the last layer's evidence depends on the inputs of the net, but "
                    f"`{name}` acts on {hyper.place()}."
                )
        return self

    @property
    def hyper_steps(self) -> int:
        """What a hyperparameter step costs."""
        # Two thirds of a step without gradients by weights, and a forward over inducing examples.
        return math.ceil(2 / 3 + self.num_inducing / (self.batch_size * self.hypers.samples) / 3)


class PosthocLaplace(Standard):
    """Standard training with log p(D) as `lml/total`."""

    # A pydantic subclass narrows its tag to another word, which the type of the base forbids.
    method: Literal["posthoc_laplace"] = "posthoc_laplace"  # type: ignore[assignment]
    learner = "tuneparts.methods.baselines._posthoc:PosthocLearner"
    hessian: Literal["diag", "kron", "full"] = "diag"
    """Structure of the Gauss-Newton curvature; `full` is for nets of a few thousand weights."""
    prior: Literal["optimised", "decay"] = "optimised"
    """Precisions per layer that maximise log p(D) (Immer et al. 2021), or weight decay times N."""
    lml_every: int = Field(default=1_000_000, gt=0)
    """Intervals between two evaluations; the last interval always has one."""
    select_by_lml: bool = False
    """End with the weights of the interval that had the largest log p(D), as far as evaluated."""
    max_gb: float = Field(default=4.0, gt=0)
    """Refuse to start if the Jacobians of one batch need more."""
    classes_only = "its evidence is that of a softmax"

    @model_validator(mode="after")
    def _check_has_prior(self) -> Self:
        if self.prior == "decay" and not self.optimiser.weight_decay:
            raise ValueError("`prior` = `decay`, but `optimiser.weight_decay` is 0. Set it.")
        return self

    def check(self, task: Task | None = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if find_spec("laplace") is None:
            raise ConfigError(
                "`posthoc_laplace` needs laplace-torch: `pip install 'tuneparts[laplace]'`, or use "
                "the method `laplace`."
            )
