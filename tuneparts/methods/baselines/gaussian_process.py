"""A sparse Gaussian process on features of augmented inputs (Schwoebel et al. 2022).

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
from dataclasses import dataclass

import torch
from torch import Tensor

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

    def __add__(self, other: "Averages") -> "Averages":
        return Averages(
            torch.cat([self.psi_BM, other.psi_BM]), self.prior_variance + other.prior_variance
        )

    @property
    def second(self) -> Tensor:
        """Sum over examples of psi psi^T (M, M)."""
        return self.psi_BM.T @ self.psi_BM


class InducedFeatures:
    """Whitened features of the kernel at M inducing features.

    Args:
        z_MD: inducing features, float64, held fixed.
        lengthscale: of the kernel.
    """

    def __init__(self, z_MD: Tensor, lengthscale: Tensor) -> None:
        self._z_MD = z_MD
        self._lengthscale = lengthscale
        eye = torch.eye(len(z_MD), dtype=z_MD.dtype, device=z_MD.device)
        self._L_MM = torch.linalg.cholesky(rbf(z_MD, z_MD, lengthscale) + _JITTER * eye)

    def averages(self, z_BSD: Tensor) -> Averages:
        """Averages over the S samples of each example."""
        B, S, _ = z_BSD.shape
        kernel_NM = rbf(z_BSD.flatten(0, 1), self._z_MD, self._lengthscale)
        mean_BM = kernel_NM.view(B, S, -1).mean(dim=1)
        psi_BM = torch.linalg.solve_triangular(self._L_MM, mean_BM.T, upper=False).T
        pairs_BSS = (-_distances(z_BSD) / (2 * self._lengthscale.square())).exp()
        return Averages(psi_BM, pairs_BSS.mean(dim=(1, 2)).sum())


def _distances(z_BSD: Tensor) -> Tensor:
    """Squared distances (B, S, S) between samples, with a gradient also where they are equal."""
    return (z_BSD[:, :, None] - z_BSD[:, None]).square().sum(dim=-1)


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
