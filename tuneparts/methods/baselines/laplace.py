"""Hypers by the gradient of Laplace's marginal likelihood, during training (Immer et al. 2022).

Weights are trained to the maximum of the posterior under a Gaussian prior; now and then one
evidence step moves the hypers and the prior's precisions up the gradient of

    log p(D | w, psi) - (log det(H(psi) + P) - log det P + w^T P w) / 2,

with H the Gauss-Newton curvature: its exact diagonal, or the Kronecker factors of Immer et al. They
take each estimate from all data; here it comes from one batch and is remembered as a running mean,
since a step over all data would cost more than the whole budget of other methods.
"""

import math
from collections.abc import Mapping
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.hypers import HyperGradient, WeightPrior
from tuneparts.methods.baselines.curvature import (
    Curvature,
    added,
    averaged,
    check_memory,
    decomposed,
    detached,
    diagonal_ggn,
    grown,
    log_evidence,
    mixed,
)
from tuneparts.methods.baselines.kronecker import check_factors, check_layers, kronecker_ggn
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.step import adam, gradient_step, loss_on, set_lr
from tuneparts.training.supervised import SupervisedLearner


class LaplaceConfig(SupervisedConfig):
    """Weights by their posterior's maximum, hypers and prior by the evidence."""

    method: Literal["laplace"] = "laplace"
    takes_runtime = "compiled"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hypers; `train` keeps it for selection."""
    curvature: Literal["diagonal", "kronecker"] = "diagonal"
    """The exact diagonal, for small nets only; or Kronecker factors, as Immer et al. (2022) have
    them, which cost less and fit nets of any size with linear layers, convolutions and norms over
    channels or features."""
    hyper_lr: float = Field(default=0.1, gt=0)
    """Adam's rate for the hypers, and for the logarithms of the prior's precisions."""
    precision_lr: float | None = Field(default=None, ge=0)
    """A rate of their own for the precisions, 0 to hold them; None takes that of the hypers."""
    precision: float = Field(default=1.0, gt=0)
    """Where the prior's precision of every parameter tensor starts."""
    burn_in: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the passes before the first evidence step."""
    evidence_every: int = Field(default=20, gt=0)
    """Weight steps per evidence step."""
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

    def evidence_passes(self, num_classes: int) -> int:
        """What one evidence step costs.

        The diagonal has a Jacobian of the batch, K backward passes, and twice as many to
        differentiate it. The factors have K backward passes without gradients by weights, and twice
        as many to differentiate them: together about K passes over as large a batch.
        """
        if self.curvature == "diagonal":
            return 3 * num_classes
        return math.ceil(num_classes * self.evidence_batch / self.batch_size)

    @model_validator(mode="after")
    def _check_weight_decay(self) -> Self:
        if self.optimiser.weight_decay:
            raise ValueError(
                "the prior's precision is the weight decay, and is learnt, but "
                f"`optimiser.weight_decay` is {self.optimiser.weight_decay:g}. Set it to 0."
            )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights"

    @model_validator(mode="after")
    def _check_curvature(self) -> Self:
        for name, hyper in self.hypers.parts.items():
            if hyper.place() == "loss" and hyper.enters_likelihood():
                raise ValueError(
                    "the curvature is that of the task's own likelihood, but the hyper "
                    f"`{name}` changes it. Leave it out, or use another method."
                )
        return self

    def build(self, context: Context) -> Learner:
        return LaplaceLearner(self, context)


class LaplaceLearner(
    SupervisedLearner,
    parts=(
        "net",
        "_log_precisions",
        "optimiser",
        "_hyper_optimiser",
        "_batches",
        "_evidence_batches",
        "_augmentation",
        "_evidence_augmentation",
    ),
    values=("_curvature", "_since"),
):
    """Weight steps, and evidence steps that cost several passes each."""

    config: LaplaceConfig

    def __init__(self, config: LaplaceConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        _check_net(self.net)
        if self.hypers.dropout is not None or config.hypers.acting_on("activations"):
            raise ConfigError(
                "the curvature is that of a prediction without dropout, but the net or the hypers "
                "have dropout rates, or other hypers of activations. Set them to 0, or leave them "
                "out."
            )
        self._check_size()
        self.optimiser = config.optimiser.build(self.net)
        names = [name for name, _ in self.net.named_parameters()]
        start = torch.full((), config.precision, device=context.device).log()
        self._log_precisions = nn.ParameterList(start.clone() for _ in names)
        self.log_precision = dict(zip(names, self._log_precisions, strict=True))
        self._curvature: dict[str, Curvature] = {}
        rate = config.hyper_lr if config.precision_lr is None else config.precision_lr
        precisions = {"params": list(self.log_precision.values()), "lr": rate}
        psi = self.hypers.learnable()
        groups = [{"params": psi, "lr": config.hyper_lr}, precisions] if psi else [precisions]
        self._hyper_optimiser = adam(groups, lr=config.hyper_lr)
        num = len(self.train_data)
        self._batches = Batches(num, config.batch_size, seed=context.seed, replacement=False)
        self._evidence_batches = Batches(
            num, config.evidence_batch, seed=context.seed, stream=("evidence",), replacement=True
        )
        self._augmentation = self.generator("augment")
        self._evidence_augmentation = self.generator("augment evidence steps")
        self._since = 0

    @property
    def evidence_passes(self) -> int:
        """What one evidence step costs."""
        return self.config.evidence_passes(self.context.task.num_classes)

    def step(self) -> Step:
        is_due = self._since >= self.config.evidence_every and self.progress >= self.config.burn_in
        if is_due and self.passes + self.evidence_passes <= self.config.passes:
            self._since = 0
            loss = self.evidence_step()
            return Step(passes=self.evidence_passes, losses={"train/hyper_loss": loss})
        self._since += 1
        return Step(passes=1, losses={"train/loss": self.weight_step()})

    def weight_step(self) -> Tensor:
        """Move the weights towards the posterior's maximum; returns the likelihood's loss."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        batch = self.train_data.take(self._batches.next(), of=self._batches)
        with self.hypers.detached():
            likelihood_loss = loss_on(
                batch,
                net=self.net,
                hypers=self.hypers,
                target=self.target,
                generator=self._augmentation,
            )
        energy = sum(
            self.log_precision[name].detach().exp() * p.square().sum()
            for name, p in self.net.named_parameters()
        )
        gradient_step(likelihood_loss + energy / (2 * len(self.train_data)), self.optimiser)
        return likelihood_loss.detach()

    def evidence_step(self) -> Tensor:
        """Move hypers and prior by one batch; returns minus the evidence per example."""
        num, size = len(self.train_data), self.config.evidence_batch
        x, y_B = self.train_data.take(self._evidence_batches.next())
        logits_BK, curvature = self._ggn(x, self._evidence_augmentation, differentiable=True)
        likelihood = -self.target.loss(logits_BK, y_B) * num
        estimate = {name: grown(h, num / size) for name, h in curvature.items()}
        self._remember({name: detached(h) for name, h in estimate.items()})
        spectra = {name: decomposed(h) for name, h in self._curvature.items()}
        evidence = log_evidence(
            likelihood,
            self._weights(),
            {name: spectrum.values for name, spectrum in spectra.items()},
            self.log_precision,
        )
        # d log det(H + P) = tr((H + P)^-1 dH): inverse from the running mean, dH from the batch.
        movement = sum(
            spectra[name].slope(h, self.log_precision[name].detach().exp())
            for name, h in estimate.items()
        )
        gradient_step(-evidence + movement / 2, self._hyper_optimiser)
        return -evidence.detach() / num

    def evidence(self) -> float:
        """Laplace's log p(D) on all training data, always under the same augmentation draws."""
        generator, num = self.generator("evaluate lml"), len(self.train_data)
        total: dict[str, Curvature] = {}
        likelihood = torch.zeros((), dtype=torch.float64, device=self.context.device)
        for x, y_B in self.train_data.iterate(self.config.evidence_batch):
            logits_BK, curvature = self._ggn(x, generator, differentiable=False)
            likelihood -= self.target.loss(logits_BK.double(), y_B, reduction="sum")
            for name, h in curvature.items():
                part = averaged(h, len(x) / num)
                total[name] = added(total[name], part) if name in total else part
        values = {name: decomposed(h).values for name, h in total.items()}
        with torch.no_grad():
            return float(log_evidence(likelihood, self._weights(), values, self.log_precision))

    def evaluate(self) -> dict[str, float]:
        metrics = {**super().evaluate(), **self.prior()}
        reports = -(-self.passes // self.config.interval)
        if self.finished or reports % self.config.lml_every == 0:
            total = self.evidence()
            metrics |= {"lml/total": total, "lml/per_example": total / len(self.train_data)}
        return metrics

    def prior(self) -> dict[str, float]:
        """The prior's precision of each parameter tensor over N, by metric name.

        As weight decay it is what a net is trained with that follows this one, see `WeightPrior`.
        """
        num = len(self.train_data)
        precisions = torch.stack(list(self._log_precisions)).detach().exp().tolist()
        return {f"hyper/weight_prior.{i}": one / num for i, one in enumerate(precisions)}

    def _ggn(
        self, x: Tensor, generator: torch.Generator, *, differentiable: bool
    ) -> tuple[Tensor, Mapping[str, Curvature]]:
        function = diagonal_ggn if self.config.curvature == "diagonal" else kronecker_ggn
        return function(
            self.net,
            lambda net: self.hypers.predict(net, x, generator=generator, training=True),
            len(x),
            differentiable=differentiable,
        )

    def _check_size(self) -> None:
        config = self.config
        if config.curvature == "kronecker":
            check_layers(self.net)
            check_factors(self.net, max_gb=config.max_gb)
            return
        # Rows, their squares and products with probabilities are all kept for the gradient.
        check_memory(
            self.net,
            num_examples=config.evidence_batch,
            num_classes=self.context.task.num_classes,
            num_copies=4,
            max_gb=config.max_gb,
        )

    def _weights(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.net.named_parameters()}

    def _remember(self, estimate: dict[str, Curvature]) -> None:
        kept = self.config.memory
        for name, h in estimate.items():
            known = self._curvature.get(name)
            self._curvature[name] = h if known is None else mixed(h, known, kept)


def _check_net(net: nn.Module) -> None:
    for name, module in net.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise ConfigError(
                "the curvature needs predictions that do not depend on the other examples of a "
                f"batch, but `{name}` is a {type(module).__name__}. Use a net without batch norms."
            )
