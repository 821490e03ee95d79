"""Hyperparameters by the marginal likelihood of a Gaussian process on the last layer's features.

Schwoebel et al. (2022) train a net, put a sparse Gaussian process on the features before its last
layer, and learn augmentation ranges by the process's bound on log p(D); net and ranges take turns.
Here updates train the net by its likelihood, and now and then one hyperparameter step takes the
gradient of the bound at fixed weights. The posterior over inducing features comes from a running
mean of the data's statistics, which is a natural gradient step (Hensman et al. 2013). Predictions
are those of the net, so that arms of a comparison differ in their hyperparameters alone.

A process g over features z with an RBF kernel k0 is averaged over the augmentation: f(x) is the
mean of g over the features of S random augmentations of x, so that its kernels are means too, of
k0(Z, z) for k_uf and of k0(z, z') over all pairs for k_ff. M inducing features Z carry the
posterior. With whitened features psi, the mean of L^-1 k0(Z, z) where L L^T = k0(Z, Z), it is that
of a linear model y = w^T psi + noise with w ~ N(0, I), and the bound of Hensman et al. (2013) is

    sum_n log N(y_n | m^T psi_n, v) - (K / 2v) (psi_n^T C psi_n + k_nn - psi_n^T psi_n) - KL(q || p)

for q(w) = N(m, C). The authors take S samples for an estimate of infinitely many, and leave pairs
of a sample with itself out so that it has no bias. That needs their hundred samples: with a few, q
fits the noise of the estimate and the bound is none. With S as part of the model, as it is of the
predictions of all methods here, it is a bound for every draw.

Shapes: B examples, S samples of each, D features, M inducing features, K outputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import LastLayer
from tuneparts.methods.baselines.standard import _OneNetLearner
from tuneparts.training.learner import Context
from tuneparts.training.loop import EVAL_BATCH, Step
from tuneparts.training.step import adam, gradient_step

_JITTER = 1e-8


def rbf(z_ND: Tensor, other_MD: Tensor, lengthscale: Tensor) -> Tensor:
    """The kernel exp(-|z - z'|^2 / (2 l^2)) (N, M)."""
    return (-torch.cdist(z_ND, other_MD).square() / (2 * lengthscale.square())).exp()


def median_distance(z_MD: Tensor) -> Tensor:
    """The median distance between different features; 1 where all are the same."""
    found = torch.pdist(z_MD)
    median = found.median() if len(found) else found.new_zeros(())
    return torch.where(median > 0, median, torch.ones_like(median))


@dataclass(frozen=True)
class Averages:
    """What the bound needs of a batch: averages over the augmentation of each example."""

    psi_BM: Tensor
    prior_variance: Tensor
    """Sum over examples of k_ff."""

    @property
    def second(self) -> Tensor:
        """Sum over examples of psi psi^T (M, M)."""
        return self.psi_BM.T @ self.psi_BM


class InducedFeatures:
    """Whitened features of the kernel at M inducing features, which are float64 and held fixed."""

    def __init__(self, z_MD: Tensor, lengthscale: Tensor) -> None:
        self._z_MD = z_MD
        self._lengthscale = lengthscale
        eye = torch.eye(len(z_MD), dtype=z_MD.dtype, device=z_MD.device)
        self._L_MM = torch.linalg.cholesky(rbf(z_MD, z_MD, lengthscale) + _JITTER * eye)

    def averages(self, z_BSD: Tensor) -> Averages:
        B, S, _ = z_BSD.shape
        kernel_NM = rbf(z_BSD.flatten(0, 1), self._z_MD, self._lengthscale)
        mean_BM = kernel_NM.view(B, S, -1).mean(dim=1)
        psi_BM = torch.linalg.solve_triangular(self._L_MM, mean_BM.T, upper=False).T
        # Unlike `cdist`, squares have a gradient also where samples are equal.
        distances_BSS = (z_BSD[:, :, None] - z_BSD[:, None]).square().sum(dim=-1)
        pairs_BSS = (-distances_BSS / (2 * self._lengthscale.square())).exp()
        return Averages(psi_BM, pairs_BSS.mean(dim=(1, 2)).sum())


@dataclass(frozen=True)
class Posterior:
    """q(w) = N(m, C), the same C for each output."""

    m_MK: Tensor
    C_MM: Tensor

    @classmethod
    def best(cls, second_MM: Tensor, cross_MK: Tensor, noise: float) -> "Posterior":
        """The q that is best for sums over the data of psi psi^T and of psi y^T."""
        eye = torch.eye(len(second_MM), dtype=second_MM.dtype, device=second_MM.device)
        C_MM = torch.cholesky_inverse(torch.linalg.cholesky(second_MM / noise + eye))
        return cls(C_MM @ cross_MK / noise, C_MM)

    def divergence(self) -> Tensor:
        """KL(q || N(0, I)) over all outputs."""
        num, outputs = self.m_MK.shape
        spread = self.C_MM.trace() - num - torch.logdet(self.C_MM)
        return (outputs * spread + self.m_MK.square().sum()) / 2

    def expected(self, found: Averages, y_BK: Tensor, noise: float) -> Tensor:
        """The expected log-likelihood of a batch under q, summed over examples and outputs."""
        num, outputs = y_BK.shape
        eye = torch.eye(len(self.C_MM), dtype=y_BK.dtype, device=y_BK.device)
        quadratic_MM = self.m_MK @ self.m_MK.T + outputs * (self.C_MM - eye)
        residual = (
            y_BK.square().sum()
            - 2 * (y_BK * (found.psi_BM @ self.m_MK)).sum()
            + (quadratic_MM * found.second).sum()
            + outputs * found.prior_variance
        )
        return -residual / (2 * noise) - num * outputs / 2 * math.log(2 * math.pi * noise)


def bound(found: Averages, y_NK: Tensor, noise: float) -> Tensor:
    """The bound on log p(Y) at the best q, from averages over all data."""
    q = Posterior.best(found.second, found.psi_BM.T @ y_NK, noise)
    return q.expected(found, y_NK, noise) - q.divergence()


class LastLayerLearner(
    _OneNetLearner,
    parts=("_hyper_optimiser", "_hyper_batches", "_hyper_augmentation"),
    values=("_second", "_cross", "_since"),
):
    config: LastLayer

    def __init__(self, config: LastLayer, context: Context) -> None:
        super().__init__(config, context)
        self._head = last_linear(self.net)
        if self.hypers.dropout is not None:
            raise ConfigError("the net has dropout rates, but features have none. Set them to 0.")
        psi = self.hypers.learnable()
        self._hyper_optimiser = adam(psi, lr=config.hyper_lr) if psi else None
        self._hyper_batches = self.new_batches("hyper steps", "batch", replacement=True)
        draw = seeding.torch_generator(context.seed, "inducing examples")
        order_N = torch.randperm(len(self.train_data), generator=draw)
        self._inducing = order_N[: config.num_inducing]
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._second: Tensor | None = None
        self._cross: Tensor | None = None
        self._since = 0

    def step(self) -> Step:
        config = self.config
        is_due = self._since >= config.hyper_every and self.progress >= config.burn_in
        has_steps_left = self.steps + config.hyper_steps <= config.steps
        if is_due and has_steps_left and self._hyper_optimiser is not None:
            self._since = 0
            losses = {"train/hyper_loss": self.hyper_step()}
            return Step(cost=config.hyper_steps, losses=losses)
        self._since += 1
        return Step(cost=1, losses={"train/loss": self.weight_step()})

    def hyper_step(self) -> Tensor:
        """Move the hyperparameters by one batch; returns minus the bound per example."""
        assert self._hyper_optimiser is not None
        num, noise = len(self.train_data), self.config.noise
        x, y_B = self.train_data.take(self._hyper_batches.next())
        self.net.eval()
        found = self._induced().averages(self._features(x, self._hyper_augmentation))
        self.net.train()
        y_BK, scale = self._targets(y_B), num / len(x)
        second, cross = found.second.detach() * scale, found.psi_BM.detach().T @ y_BK * scale
        if self._second is None or self._cross is None:
            self._second, self._cross = second, cross
        else:
            self._second = torch.lerp(second, self._second, self.config.memory)
            self._cross = torch.lerp(cross, self._cross, self.config.memory)
        q = Posterior.best(self._second, self._cross, noise)
        loss = (q.divergence() - scale * q.expected(found, y_BK, noise)) / num
        gradient_step(loss, self._hyper_optimiser)
        return loss.detach().to(torch.get_default_dtype())

    @torch.no_grad()
    def evidence(self) -> float:
        """The bound on log p(D) of all training data, always under the same draws."""
        generator = self.generator("evaluate lml")
        was_training = self.net.training
        self.net.eval()
        induced = self._induced()
        found, targets = [], []
        batch_size = max(1, EVAL_BATCH // self.hypers.num_samples(training=True))
        for x, y_B in self.train_data.iterate(batch_size):
            found.append(induced.averages(self._features(x, generator)))
            targets.append(self._targets(y_B))
        self.net.train(was_training)
        prior_variance = sum((one.prior_variance for one in found[1:]), found[0].prior_variance)
        total = Averages(torch.cat([one.psi_BM for one in found]), prior_variance)
        return float(bound(total, torch.cat(targets), self.config.noise))

    def evaluate(self) -> dict[str, float]:
        return super().evaluate() | (self.lml(self.evidence()) if self.finished else {})

    def _features(self, x: Tensor, generator: torch.Generator) -> Tensor:
        z_ND = self._seen(
            lambda: self.hypers.predict(self.net, x, generator=generator, training=True)
        )
        return z_ND.view(len(x), -1, z_ND.shape[-1])

    def _induced(self) -> InducedFeatures:
        """The process at the features that the inducing examples have now, as they are."""
        x, _ = self.train_data.take(self._inducing)
        with torch.no_grad():
            z_MD = self._seen(lambda: self.net(x))
        return InducedFeatures(z_MD, self.config.lengthscale * median_distance(z_MD))

    def _seen(self, call: Callable[[], object]) -> Tensor:
        """The inputs (N, D) of the last layer in a call of the net, in double precision."""
        seen: list[Tensor] = []
        handle = self._head.register_forward_pre_hook(lambda _, args: seen.append(args[0].double()))
        try:
            call()
        finally:
            handle.remove()
        return seen[0]

    def _targets(self, y_B: Tensor) -> Tensor:
        """One-hot labels (B, K) around their mean without knowledge."""
        num_classes = self.context.task.num_classes
        return nn.functional.one_hot(y_B, num_classes).double() - 1 / num_classes


def last_linear(net: nn.Module) -> nn.Linear:
    """The last linear layer of a net, whose inputs are the features; refuses a net without."""
    found = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not found:
        raise ConfigError("the features are the inputs of a linear layer, but the net has none.")
    return found[-1]
