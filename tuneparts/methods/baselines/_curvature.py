"""Generalised Gauss-Newton curvature of a net's weights, and Laplace's evidence from it.

It is H = sum_n J_n^T (diag(p_n) - p_n p_n^T) J_n, with J_n the Jacobian of the logits of example n
(Immer et al. 2021); J is that of the prediction averaged over augmentation samples. Its diagonal
is computed exactly here and can be differentiated by whatever the inputs depend on, such as
augmentation ranges (Immer et al. 2022).

For a layer with inputs a and outputs s the curvature of its weights is approximated by A (x) B,
with A the mean of a a^T and B the sum of J^T (diag(p) - p p^T) J, J the Jacobian of the logits by s
(Martens & Grosse 2015; Grosse & Martens 2016 for convolutions, whose positions count as examples).
Of the S augmented samples of an example inputs are averaged and Jacobians summed, because the
prediction is the mean over them (Immer et al. 2022). A bias has B alone; single scales and shifts,
as FixUp nets and norms have them, an exact diagonal. No Jacobian by the weights is ever made: a
batch costs K backward passes to the outputs of the layers, whatever the number of weights.

Shapes: B examples, S samples of each, N = B * S, K classes, n entries of a parameter, T positions,
I inputs and O outputs of a layer.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.nets.layers import Bias, ScalarMultiplier, scaled_by_row
from tuneparts.nets.surgery import reweighted, tied_names

_Predict = Callable[[Callable[[Tensor], Tensor]], Tensor]
Curvature: TypeAlias = Tensor | tuple[Tensor, ...]
"""Of one parameter: its diagonal, or square matrices whose Kronecker product it is. What grows with
the data is the diagonal or the last matrix; one before it is a mean."""

_FACTORED = (nn.Linear, nn.Conv2d)
_SCALED = (Bias, ScalarMultiplier, nn.GroupNorm, nn.LayerNorm)


def check_memory(
    net: nn.Module, num_examples: int, num_classes: int, *, num_copies: int, max_gb: float
) -> None:
    num_weights = sum(p.numel() for p in net.parameters())
    needed = 4 * num_copies * num_examples * num_classes * num_weights / 1e9
    if needed > max_gb:
        raise ConfigError(
            f"`max_gb` = {max_gb:g}: the Jacobians of {num_examples} examples x {num_classes} "
            f"classes x {num_weights} weights need about {needed:.1f} GB. Use a smaller net or "
            "batch, or raise it."
        )


def diagonal_ggn(
    net: nn.Module, predict: _Predict, num_examples: int, *, differentiable: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of a batch and the diagonal of its curvature, summed over the batch.

    Every example has weights of its own, equal in value, so that one backward pass per class yields
    all Jacobians. `predict` maps a net, from inputs (N, ...) to logits (N, K), to averaged logits
    (B, K). If `differentiable`, the memory is that of K Jacobians of the batch instead of two.
    """
    own = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
    copies = {n: p.expand(num_examples, *p.shape).clone().requires_grad_() for n, p in own.items()}

    def batched(x_N: Tensor) -> Tensor:
        run = torch.func.vmap(lambda weights, x_S: reweighted(net, weights)(x_S))
        out_BSK: Tensor = run(copies, x_N.view(num_examples, -1, *x_N.shape[1:]))
        return out_BSK.flatten(0, 1)

    logits_BK = predict(batched)
    probs_BK = logits_BK.softmax(dim=1) if differentiable else logits_BK.detach().softmax(dim=1)
    mean = {name: torch.zeros_like(c) for name, c in copies.items()}
    square = {name: torch.zeros_like(c) for name, c in copies.items()}
    for k in range(logits_BK.shape[1]):
        own_k, leaves = logits_BK[:, k].sum(), list(copies.values())
        rows = torch.autograd.grad(own_k, leaves, retain_graph=True, create_graph=differentiable)
        for name, row_Bn in zip(copies, rows, strict=True):
            weight_B = probs_BK[:, k].view(-1, *[1] * (row_Bn.dim() - 1))
            mean[name] = mean[name] + weight_B * row_Bn
            square[name] = square[name] + weight_B * row_Bn.square()
    diagonal = {name: (square[name] - mean[name].square()).sum(0) for name in copies}
    return (logits_BK if differentiable else logits_BK.detach()), diagonal


def each(function: Callable[..., Tensor], *given: Curvature) -> Curvature:
    """What a function makes of diagonals, or of the factors of the same place."""
    if isinstance(given[0], tuple):
        return tuple(function(*factors) for factors in zip(*given, strict=True))
    return function(*given)


def grown(h: Curvature, ratio: float) -> Curvature:
    return (*h[:-1], h[-1] * ratio) if isinstance(h, tuple) else h * ratio


def averaged(h: Curvature, share: float) -> Curvature:
    """The curvature of a share of the data, of which sums give that of all."""
    return (*(f * share for f in h[:-1]), h[-1]) if isinstance(h, tuple) else h


@dataclass(frozen=True)
class _Spectrum:
    """Eigenvalues and eigenvectors of the curvature of one parameter, factor by factor."""

    factors: tuple[Tensor, ...]
    """Eigenvalues of each factor; the diagonal itself where there is one."""
    bases: tuple[Tensor, ...] = ()
    """Eigenvectors of each factor, as columns; none of a diagonal."""

    @property
    def values(self) -> Tensor:
        found = self.factors[0]
        return torch.outer(found, self.factors[1]) if len(self.factors) > 1 else found

    def slope(self, h: Curvature, precision: Tensor) -> Tensor:
        """A number whose gradient by `h` is that of log det(H + P) at this spectrum, P a scalar."""
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


def decomposed(h: Curvature) -> _Spectrum:
    """The spectrum of a parameter's curvature, whose factors have no negative eigenvalues."""
    if not isinstance(h, tuple):
        return _Spectrum((h,))
    found = []
    for factor in h:
        try:
            values, basis = torch.linalg.eigh(factor)
            is_found = bool(values.isfinite().all())
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            is_found = False
        if not is_found and not factor.isfinite().all():
            raise DivergedError("the curvature is not finite: weights or hyperparameters diverged.")
        if not is_found:
            # Factors with many inputs that are always 0 do that: by an error, or, in some LAPACKs,
            # by eigenvalues that are no numbers. Their singular values are the same.
            basis, values, _ = torch.linalg.svd(factor)
        found.append((values.clamp_min(0), basis))
    return _Spectrum(*zip(*found, strict=True))


def log_evidence(
    log_likelihood: Tensor,
    weights: Mapping[str, Tensor],
    curvature: Mapping[str, Tensor],
    log_precision: Mapping[str, Tensor],
) -> Tensor:
    """Laplace's approximation of log p(D), with a Gaussian prior per parameter tensor.

    `curvature` has the eigenvalues of H, of each parameter alone, over all data.
    """
    total = log_likelihood
    for name, weight in weights.items():
        log_delta = log_precision[name]
        delta = log_delta.exp()
        volume = ((curvature[name] + delta).log() - log_delta).sum()
        total = total - (volume + delta * weight.square().sum()) / 2
    return total


def check_factors(net: nn.Module, *, max_gb: float) -> None:
    """Refuse a net with weights whose Kronecker factors are not known, or would not fit."""
    sides = [0]
    for name, module in net.named_modules():
        has_own = any(p.requires_grad for p in module.parameters(recurse=False))
        is_grouped = isinstance(module, nn.Conv2d) and module.groups > 1
        if has_own and (is_grouped or not isinstance(module, _FACTORED + _SCALED)):
            known = ", ".join(cls.__name__ for cls in _FACTORED + _SCALED)
            what = "grouped Conv2d" if is_grouped else type(module).__name__
            raise ConfigError(
                f"`{name}` is a {what}: Kronecker factors are known for {known}. "
                "Use `curvature='diagonal'`, or another net."
            )
        if isinstance(module, _FACTORED):
            sides += [module.weight[0].numel(), len(module.weight)]
    if tied := tied_names(net):
        raise ConfigError(
            f"`{next(iter(tied))}` is shared: Kronecker factors are those of a layer that has its "
            "weights for itself. Use `curvature='diagonal'`."
        )
    # The running mean, that of the batch, its eigenvectors, and what the decomposition needs.
    needed = 4 * 6 * sum(side**2 for side in sides) / 1e9
    if needed > max_gb:
        raise ConfigError(
            f"`max_gb` = {max_gb:g}: Kronecker factors of layers with up to {max(sides)} inputs or "
            f"outputs need about {needed:.1f} GB. Use a smaller net, or raise it."
        )


def kronecker_ggn(
    net: nn.Module, predict: _Predict, num_examples: int, *, differentiable: bool = False
) -> tuple[Tensor, dict[str, Curvature]]:
    """Logits of a batch and the factors of its curvature, summed over the batch.

    By parameter name they are (A, B) of weights, (B,) of biases, and the diagonal, in the shape of
    the parameter, of scales and shifts. Arguments are those of `diagonal_ggn`; see `check_factors`.
    """
    watch = _Watch(net, num_examples)
    with torch.enable_grad():
        logits_BK = predict(watch.net)
    p_BK = logits_BK.softmax(dim=1) if differentiable else logits_BK.detach().softmax(dim=1)
    # R R^T = diag(p) - p p^T, so that column k of R takes one backward pass.
    root_BK = p_BK.sqrt()
    R_BKK = torch.diag_embed(root_BK) - p_BK[:, :, None] * root_BK[:, None, :]
    seen = [*watch.outputs.values(), *watch.copies.values()]
    columns = [
        torch.autograd.grad(
            logits_BK, seen, R_BKK[:, :, k], retain_graph=True, create_graph=differentiable
        )
        for k in range(logits_BK.shape[1])
    ]
    found: dict[str, Curvature] = {}
    for i, (name, x) in enumerate(watch.inputs.items()):
        layer = net.get_submodule(name)
        B_OO = _outer(layer, [column[i] for column in columns], num_examples)
        A_II = _inner(layer, x if differentiable else x.detach(), num_examples)
        found |= {f"{name}.weight": (A_II, B_OO), f"{name}.bias": (B_OO,)}
    for i, name in enumerate(watch.copies, start=len(watch.outputs)):
        found[name] = torch.stack([column[i].square().sum(0) for column in columns]).sum(0)
    if not differentiable:
        logits_BK = logits_BK.detach()
    return logits_BK, {n: found[n] for n, p in net.named_parameters() if p.requires_grad}


class _Watch:
    """A net at constant weights that remembers, by name, what its layers see and give."""

    def __init__(self, net: nn.Module, num_examples: int) -> None:
        self.net = reweighted(net, {name: p.detach() for name, p in net.named_parameters()})
        self._num_examples = num_examples
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.copies: dict[str, Tensor] = {}
        """Scales and shifts (B, ...), one for each example."""
        for name, module in self.net.named_modules():
            if any(p.requires_grad for p in net.get_submodule(name).parameters(recurse=False)):
                hook = self._remember if isinstance(module, _FACTORED) else self._rescale
                # The copy shares its hooks with the net, which is left alone.
                module._forward_hooks = OrderedDict(module._forward_hooks)
                module.register_forward_hook(partial(hook, name))

    def _remember(
        self, name: str, _: nn.Module, given: tuple[Tensor, ...], output: Tensor
    ) -> Tensor:
        if name in self.outputs:
            raise ConfigError(
                f"`{name}` is called again: Kronecker factors are those of a layer that is called "
                "once. Use `curvature='diagonal'`."
            )
        self.inputs[name] = given[0]
        self.outputs[name] = output if output.requires_grad else output.requires_grad_()
        return output.clone()  # what follows may change it in place

    def _rescale(
        self, name: str, module: nn.Module, given: tuple[Tensor, ...], _: Tensor
    ) -> Tensor:
        own = {}
        for key, parameter in module.named_parameters():
            copies = parameter.detach().expand(self._num_examples, *parameter.shape).clone()
            self.copies[f"{name}.{key}" if name else key] = copies.requires_grad_()
            own[key] = copies.repeat_interleave(len(given[0]) // self._num_examples, dim=0)
        return scaled_by_row(module, given[0], own)


def _inner(layer: nn.Module, x: Tensor, num_examples: int) -> Tensor:
    """A: the mean of a a^T over examples and positions."""
    x = x.reshape(num_examples, -1, *x.shape[1:]).mean(dim=1)
    if isinstance(layer, nn.Conv2d):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = F.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
        a_BIT = F.unfold(x, layer.kernel_size, dilation=layer.dilation, stride=layer.stride)
        a_RI = a_BIT.transpose(1, 2).flatten(0, 1)
    else:
        a_RI = x.reshape(-1, x.shape[-1])
    return a_RI.T @ a_RI / len(a_RI)


def _outer(layer: nn.Module, grads: list[Tensor], num_examples: int) -> Tensor:
    """B: the sum of g g^T over examples, positions and columns of the likelihood's curvature."""
    # Samples first: what is stacked is then S times smaller.
    g = torch.stack([g.reshape(num_examples, -1, *g.shape[1:]).sum(dim=1) for g in grads])
    g_RO = g.movedim(2, -1).flatten(0, -2) if isinstance(layer, nn.Conv2d) else g.flatten(0, -2)
    return g_RO.T @ g_RO
