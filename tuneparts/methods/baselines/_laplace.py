"""Hyperparameters by the gradient of Laplace's marginal likelihood (Immer et al. 2022).

Weights are trained to the maximum of the posterior under a Gaussian prior; now and then one
evidence step moves the hyperparameters and the prior's precisions up the gradient of

    log p(D | w, psi) - (log det(H(psi) + P) - log det P + w^T P w) / 2,

with H the Gauss-Newton curvature: its exact diagonal, or the Kronecker factors of Immer et al. They
take each estimate from all data; here it comes from one batch and is remembered as a running mean,
since a step over all data would cost more than the whole budget of other methods.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines import _curvature as ggn
from tuneparts.methods.baselines._curvature import Curvature
from tuneparts.methods.baselines.config import Laplace
from tuneparts.methods.baselines.standard import _OneNetLearner
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step
from tuneparts.training.step import adam, gradient_step


class LaplaceLearner(
    _OneNetLearner,
    parts=("_log_precisions", "_hyper_optimiser", "_evidence_batches", "_evidence_augmentation"),
    values=("_curvature", "_since"),
):
    config: Laplace

    def __init__(self, config: Laplace, context: Context) -> None:
        super().__init__(config, context)
        for name, module in self.net.named_modules():
            if getattr(module, "running_mean", None) is not None:
                raise ConfigError(
                    f"`{name}` is a {type(module).__name__}: the curvature is that of predictions "
                    "of each example by itself. Use a net without batch norms."
                )
        if self.hypers.dropout is not None or config.hypers.acting_on("activations"):
            raise ConfigError(
                "the net has dropout rates, or something acts on activations: the curvature is of "
                "predictions without. Set them to 0, or leave them out."
            )
        if config.curvature == "kronecker":
            ggn.check_factors(self.net, max_gb=config.max_gb)
        else:  # rows, squares and products with probabilities are all kept for the gradient
            num_classes, size = context.task.num_classes, config.evidence_batch
            ggn.check_memory(self.net, size, num_classes, num_copies=4, max_gb=config.max_gb)
        names = [name for name, _ in self.net.named_parameters()]
        start = torch.full((), config.precision, device=context.device).log()
        self._log_precisions = nn.ParameterList(start.clone() for _ in names)
        self.log_precision = dict(zip(names, self._log_precisions, strict=True))
        self._curvature: dict[str, Curvature] = {}
        rate = config.hyper_lr if config.precision_lr is None else config.precision_lr
        groups: list[dict[str, Any]] = [{"params": self._log_precisions, "lr": rate}]
        if psi := self.hypers.learnable():
            groups.insert(0, {"params": psi})
        self._hyper_optimiser = adam(groups, lr=config.hyper_lr)
        size = config.evidence_batch
        self._evidence_batches = self.new_batches("evidence", size=size, replacement=True)
        self._evidence_augmentation = self.generator("augment evidence steps")
        self._since = 0

    def step(self) -> Step:
        is_due = self._since >= self.config.evidence_every and self.progress >= self.config.burn_in
        cost = self.config.evidence_steps(self.context.task.num_classes)
        if is_due and self.steps + cost <= self.config.steps:
            self._since = 0
            return Step(cost=cost, losses={"train/hyper_loss": self.evidence_step()})
        self._since += 1
        return Step(cost=1, losses={"train/loss": self.weight_step()})

    def energy(self) -> Tensor | float:
        total: Tensor | int = sum(
            self.log_precision[name].detach().exp() * p.square().sum()
            for name, p in self.net.named_parameters()
        )
        return total / (2 * len(self.train_data))

    def evidence_step(self) -> Tensor:
        """Move hyperparameters and prior by one batch; returns minus the evidence per example."""
        num, size = len(self.train_data), self.config.evidence_batch
        x, y_B = self.train_data.take(self._evidence_batches.next())
        logits_BK, curvature = self._ggn(x, self._evidence_augmentation, differentiable=True)
        likelihood = -self.target.loss(logits_BK, y_B) * num
        estimate = {name: ggn.grown(h, num / size) for name, h in curvature.items()}
        self._remember({name: ggn.each(Tensor.detach, h) for name, h in estimate.items()})
        spectra = {name: ggn.decomposed(h) for name, h in self._curvature.items()}
        values = {name: spectrum.values for name, spectrum in spectra.items()}
        evidence = ggn.log_evidence(likelihood, self._weights(), values, self.log_precision)
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
                part = ggn.averaged(h, len(x) / num)
                total[name] = ggn.each(torch.add, total[name], part) if name in total else part
        values = {name: ggn.decomposed(h).values for name, h in total.items()}
        with torch.no_grad():
            return float(ggn.log_evidence(likelihood, self._weights(), values, self.log_precision))

    def evaluate(self) -> dict[str, float]:
        metrics, num = super().evaluate(), len(self.train_data)
        # Over N: the weight decay of a net that follows this one, see `WeightPrior`.
        precisions = torch.stack(list(self._log_precisions)).detach().exp().tolist()
        metrics |= {f"hyper/weight_prior.{i}": one / num for i, one in enumerate(precisions)}
        is_due = self.is_lml_due(self.config.lml_every)
        return metrics | (self.lml(self.evidence()) if is_due else {})

    def _ggn(
        self, x: Tensor, generator: torch.Generator, *, differentiable: bool
    ) -> tuple[Tensor, Mapping[str, Curvature]]:
        function = ggn.diagonal_ggn if self.config.curvature == "diagonal" else ggn.kronecker_ggn
        predict = partial(self.hypers.predict, x=x, generator=generator, training=True)
        return function(self.net, predict, len(x), differentiable=differentiable)

    def _weights(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.net.named_parameters()}

    def _remember(self, estimate: dict[str, Curvature]) -> None:
        mean = partial(torch.lerp, weight=self.config.memory)
        for name, new in estimate.items():
            old = self._curvature.get(name)
            self._curvature[name] = new if old is None else ggn.each(mean, new, old)
