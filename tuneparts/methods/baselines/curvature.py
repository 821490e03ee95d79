"""Generalised Gauss-Newton curvature of a net's weights, and Laplace's evidence from it.

It is H = sum_n J_n^T (diag(p_n) - p_n p_n^T) J_n, with J_n the Jacobian of the logits of example n
(Immer et al. 2021); J is that of the prediction averaged over augmentation samples. Its diagonal
is computed exactly here and can be differentiated by whatever the inputs depend on, such as
augmentation ranges (Immer et al. 2022). Its Kronecker factors stand in `kronecker`.

Shapes: B examples, S samples of each, N = B * S, K classes, n entries of a parameter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.models.reweighted import reweighted

Predict = Callable[[Callable[[Tensor], Tensor]], Tensor]
Curvature: TypeAlias = Tensor | tuple[Tensor, ...]
"""Of one parameter: its diagonal, or square matrices whose Kronecker product it is. What grows with
the data is the diagonal or the last matrix; one before it is a mean."""


def check_memory(
    net: nn.Module, *, num_examples: int, num_classes: int, num_copies: int, max_gb: float
) -> None:
    """Refuse Jacobians of a batch that would not fit, before anything is spent on them.

    Args:
        net: whose weights they are taken by.
        num_examples: B.
        num_classes: K.
        num_copies: tensors of the Jacobian's size that are alive at once.
        max_gb: the limit.
    """
    num_weights = sum(p.numel() for p in net.parameters())
    needed = 4 * num_copies * num_examples * num_classes * num_weights / 1e9
    if needed > max_gb:
        raise ConfigError(
            f"the Jacobians of one batch must fit in `max_gb` = {max_gb:g} GB, but {num_examples} "
            f"examples x {num_classes} classes x {num_weights} weights need about {needed:.1f} GB. "
            "Use a smaller net or batch, or raise `max_gb`."
        )


def diagonal_ggn(
    net: nn.Module, predict: Predict, num_examples: int, *, differentiable: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of a batch and the diagonal of its curvature, summed over the batch.

    Every example is given weights of its own, equal in value, so that one backward pass per class
    yields the Jacobians of all examples.

    Args:
        net: without statistics over the batch; read, never moved.
        predict: from a function of inputs (N, ...) to logits (N, K), to averaged logits (B, K).
        num_examples: B.
        differentiable: whether the result carries a graph to what `predict` depends on, at the
            memory of K Jacobians of the batch instead of two.

    Returns:
        logits_BK and, by parameter name, the diagonal in the shape of the parameter.
    """
    own = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
    copies = {
        name: p.expand(num_examples, *p.shape).clone().requires_grad_() for name, p in own.items()
    }

    def run(weights: dict[str, Tensor], x_S: Tensor) -> Tensor:
        logits_SK: Tensor = reweighted(net, weights)(x_S)
        return logits_SK

    def batched(x_N: Tensor) -> Tensor:
        x_BS = x_N.view(num_examples, -1, *x_N.shape[1:])
        return torch.func.vmap(run)(copies, x_BS).flatten(0, 1)

    logits_BK = predict(batched)
    probs_BK = logits_BK.softmax(dim=1) if differentiable else logits_BK.detach().softmax(dim=1)
    mean = {name: torch.zeros_like(c) for name, c in copies.items()}
    square = {name: torch.zeros_like(c) for name, c in copies.items()}
    for k in range(logits_BK.shape[1]):
        rows = torch.autograd.grad(
            logits_BK[:, k].sum(),
            list(copies.values()),
            retain_graph=True,
            create_graph=differentiable,
        )
        for name, row_Bn in zip(copies, rows, strict=True):
            weight_B = probs_BK[:, k].view(-1, *[1] * (row_Bn.dim() - 1))
            mean[name] = mean[name] + weight_B * row_Bn
            square[name] = square[name] + weight_B * row_Bn.square()
    diagonal = {name: (square[name] - mean[name].square()).sum(0) for name in copies}
    return (logits_BK if differentiable else logits_BK.detach()), diagonal


def detached(h: Curvature) -> Curvature:
    """The same without its graph."""
    return tuple(f.detach() for f in h) if isinstance(h, tuple) else h.detach()


def mixed(h: Curvature, known: Curvature, kept: float) -> Curvature:
    """A running mean after one more estimate, of which it keeps this share of what was known."""
    if isinstance(h, tuple):
        pairs = zip(h, known, strict=True)
        return tuple(torch.lerp(new, old, kept) for new, old in pairs)
    assert isinstance(known, Tensor)
    return torch.lerp(h, known, kept)


def added(h: Curvature, other: Curvature) -> Curvature:
    """The sum, factor by factor."""
    if isinstance(h, tuple):
        return tuple(one + two for one, two in zip(h, other, strict=True))
    assert isinstance(other, Tensor)
    return h + other


def grown(h: Curvature, ratio: float) -> Curvature:
    """The curvature of so many times the data."""
    return (*h[:-1], h[-1] * ratio) if isinstance(h, tuple) else h * ratio


def averaged(h: Curvature, share: float) -> Curvature:
    """The curvature of a share of the data, of which sums give that of all."""
    return (*(f * share for f in h[:-1]), h[-1]) if isinstance(h, tuple) else h


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues and eigenvectors of the curvature of one parameter, factor by factor."""

    factors: tuple[Tensor, ...]
    """Eigenvalues of each factor; the diagonal itself where there is one."""
    bases: tuple[Tensor, ...] = ()
    """Eigenvectors of each factor, as columns; none of a diagonal."""

    @property
    def values(self) -> Tensor:
        """All eigenvalues."""
        found = self.factors[0]
        return torch.outer(found, self.factors[1]) if len(self.factors) > 1 else found

    def slope(self, h: Curvature, precision: Tensor) -> Tensor:
        """A number whose gradient by `h` is that of log det(H + P) at this spectrum.

        Args:
            h: what moves, with the structure of the spectrum; of one batch, say.
            precision: P is this number times the identity.
        """
        if not isinstance(h, tuple):
            return (h / (self.values + precision)).sum()
        inverse = 1 / (self.values + precision)
        total = torch.zeros_like(precision)
        for i, (factor, basis) in enumerate(zip(h, self.bases, strict=True)):
            diagonal = (basis * (factor @ basis)).sum(0)
            others = [values for j, values in enumerate(self.factors) if j != i]
            weight = inverse if not others else (inverse if i == 0 else inverse.T) @ others[0]
            total = total + (weight * diagonal).sum()
        return total


def decomposed(h: Curvature) -> Spectrum:
    """The spectrum of a parameter's curvature."""
    if not isinstance(h, tuple):
        return Spectrum((h,))
    found = [_eigen(factor) for factor in h]
    return Spectrum(tuple(v.clamp_min(0) for v, _ in found), tuple(basis for _, basis in found))


def _eigen(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix without negative eigenvalues."""
    try:
        values, basis = torch.linalg.eigh(factor)
        is_found = bool(values.isfinite().all())
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        is_found = False
    if not is_found and factor.isfinite().all():
        # Factors with many inputs that are always 0 do that: by an error, or, in some LAPACKs, by
        # eigenvalues that are no numbers. Their singular values are the same.
        basis, values, _ = torch.linalg.svd(factor)
    elif not is_found:
        raise DivergedError("the curvature is not finite: the net or its hypers have diverged.")
    return values, basis


def log_evidence(
    log_likelihood: Tensor,
    weights: Mapping[str, Tensor],
    curvature: Mapping[str, Tensor],
    log_precision: Mapping[str, Tensor],
) -> Tensor:
    """Laplace's approximation of log p(D), with a Gaussian prior per parameter tensor.

    log p(D | w) - (log det(H + P) - log det P + w^T P w) / 2, H being that of each parameter alone.

    Args:
        log_likelihood: log p(D | w), summed over the data.
        weights: w, by name.
        curvature: eigenvalues of H over all data, by name; of a diagonal itself.
        log_precision: log of the prior's precision, a scalar by name.
    """
    total = log_likelihood
    for name, weight in weights.items():
        log_delta = log_precision[name]
        delta = log_delta.exp()
        volume = ((curvature[name] + delta).log() - log_delta).sum()
        total = total - (volume + delta * weight.square().sum()) / 2
    return total
