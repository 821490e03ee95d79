"""Gaussians N(mu, sigma^2) over the weights of a net (Subia-Waud & Dasmahapatra 2023, appendix).

The net stays the ordinary module that it is: mu are its own parameters, and everything else stands
next to it in `Gaussians`. A draw is one tensor w = mu + eps * max(sigma, 2^-30), eps ~ N(0, 1), for
each covered parameter, shared by the batch. The net is lent a draw for the time of a call, so that
any layer that reads its parameters as attributes can be covered, tied weights stay tied, and hooks
stay in place.

Shapes: N all covered numbers of a net, in the order of its parameters; R the free ones; B batch,
S draws, K classes.
"""

import math
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError

FLOOR = 2.0**-30
"""Smallest standard deviation that a weight is drawn with."""
_BLOCK = 1 << 16
"""Numbers that are worked on at a time on a CPU, so that they stay in its cache."""

_COVERED = (
    nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.Embedding, nn.EmbeddingBag,
    nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
)  # fmt: skip
"""Layers that multiply, whose own parameters are covered; others stay in float, as in the paper."""


@dataclass(frozen=True)
class Draw:
    values: dict[str, Tensor]
    """By the parameter's name; leaves of the graph, for gradients by `take_gradients`."""
    eps_N: Tensor


@dataclass(frozen=True)
class _Held:
    """What a step may not move; fixed values change once a round, so it is made once a round."""

    free_N: Tensor
    """1 where a weight may move, 0 elsewhere: a product is many times faster than a mask."""
    mu_N: Tensor
    """The value where a weight may not move, 0 elsewhere."""
    least_sigma_N: Tensor
    """The deviation where it may not move, the floor elsewhere."""
    most_sigma_N: Tensor
    """The deviation where it may not move, infinity elsewhere."""
    is_empty: bool


class Gaussians(nn.Module):
    """Standard deviations of a net's weights, and which of them are fixed.

    `sigma` is stored directly, because the regulariser's gradient is linear in it. The means are
    the parameters of the net itself, by the names of `net.named_parameters()`.
    """

    fixed: Tensor

    def __init__(self, net: nn.Module, names: Collection[str]) -> None:
        super().__init__()
        chosen = set(names)
        self.mus = {name: p for name, p in net.named_parameters() if name in chosen}
        first = next(iter(self.mus.values()))
        num = sum(mu.numel() for mu in self.mus.values())
        self.sigma = nn.Parameter(first.new_full((num,), FLOOR, requires_grad=False))
        self.register_buffer("fixed", torch.zeros(num, dtype=torch.bool, device=first.device))
        self._held: _Held | None = None

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._held = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.mus)

    def means(self) -> Tensor:
        return torch.cat([mu.detach().flatten() for mu in self.mus.values()])

    def parts(self, all_N: Tensor) -> dict[str, Tensor]:
        """View a vector (N,) as one tensor of each parameter's shape, by name."""
        pieces = torch.split(all_N, [mu.numel() for mu in self.mus.values()])
        pairs = zip(self.mus.items(), pieces, strict=True)
        return {name: piece.view(mu.shape) for (name, mu), piece in pairs}

    @torch.no_grad()
    def write(self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor) -> None:
        """Replace all means, deviations (those below the floor by it), and which are fixed."""
        for name, part in self.parts(mu_N).items():
            self.mus[name].copy_(part)
        self.sigma.copy_(sigma_N.clamp(min=FLOOR))
        self.fixed.copy_(fixed_N)
        self._held = None

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> Draw:
        eps_N = torch.empty_like(self.sigma)
        scale = self.parts(self.sigma.detach())  # at the floor or above, see `restore_fixed`
        values = {}
        for name, eps in self.parts(eps_N).items():
            mu = self.mus[name]
            eps.normal_(generator=generator)
            values[name] = torch.addcmul(mu, eps, scale[name]).requires_grad_(mu.requires_grad)
        return Draw(values, eps_N)

    @torch.no_grad()
    def take_gradients(self, draw: Draw) -> None:
        """Move the gradients of a draw to means and deviations; those of fixed entries are 0."""
        held = self._hold()
        slope_N = torch.empty_like(self.sigma)
        eps, free = self.parts(draw.eps_N), self.parts(held.free_N)
        for name, part in self.parts(slope_N).items():
            grad = self.mus[name].grad = draw.values[name].grad
            if grad is None:
                part.zero_()
                continue
            for one, is_free, drawn, out in blocks(grad, free[name], eps[name], part):
                if not held.is_empty:
                    one.mul_(is_free)
                torch.mul(one, drawn, out=out)
        self.sigma.grad = slope_N

    @torch.no_grad()
    def add_gradients(self, slope_R: Tensor) -> None:
        slope_N = torch.zeros_like(self.sigma)
        slope_N[~self.fixed] = slope_R.to(slope_N.dtype)
        for name, slope in self.parts(slope_N).items():
            grad = self.mus[name].grad
            if grad is not None:
                grad.add_(slope)

    @torch.no_grad()
    def mask_gradients(self) -> None:
        """Zero the gradients of fixed means, so that clipping does not count them."""
        for name, free in self.parts(self._hold().free_N).items():
            grad = self.mus[name].grad
            if grad is not None and not self._hold().is_empty:
                grad.mul_(free)

    @torch.no_grad()
    def restore_fixed(self) -> None:
        """Put back what an optimiser's step moved but may not, as by weight decay, bit for bit.

        Free deviations stay at the floor or above: below it, the loss has no gradient for them.
        """
        held = self._hold()
        if held.is_empty:
            self.keep_above_floor()
            return
        free, kept = self.parts(held.free_N), self.parts(held.mu_N)
        for name, mu in self.mus.items():
            torch.addcmul(kept[name], mu, free[name], out=mu.data)
        sigma_N = self.sigma.data
        torch.clamp(sigma_N, min=held.least_sigma_N, max=held.most_sigma_N, out=sigma_N)

    @torch.no_grad()
    def keep_above_floor(self) -> None:
        self.sigma.clamp_(min=FLOOR)

    def _hold(self) -> _Held:
        if self._held is None:
            frozen = [torch.full_like(mu, not mu.requires_grad) for mu in self.mus.values()]
            held_N = self.fixed | torch.cat([part.flatten() for part in frozen]).bool()
            self._held = _Held(
                free_N=(~held_N).to(self.sigma.dtype),
                mu_N=self.means().masked_fill_(~held_N, 0),
                least_sigma_N=self.sigma.detach().masked_fill(~held_N, FLOOR),
                most_sigma_N=self.sigma.detach().masked_fill(~held_N, math.inf),
                is_empty=not bool(held_N.any()),
            )
        return self._held


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of tensors of one shape, on a CPU so small that two steps over one read memory once.

    Where a tensor has another memory format than the others (`channels_last`, or a transposed
    weight), all are returned whole: their numbers do not lie in the same order.
    """
    if not all(tensor.is_contiguous() for tensor in tensors):
        return iter([tensors])
    flat = [tensor.view(-1) for tensor in tensors]
    size = _BLOCK if flat[0].device.type == "cpu" else max(1, len(flat[0]))
    return zip(*(torch.split(one, size) for one in flat), strict=True)


def cover(net: nn.Module, x: Tensor | None = None) -> tuple[list[str], dict[str, str]]:
    """Names of the parameters that become Gaussians; of the others the reason and their number.

    The net is tried with inputs (B, ...) on its device, if given.
    """
    reasons = {name: "" for name, _ in net.named_parameters()}
    first = {id(parameter): name for name, parameter in net.named_parameters()}
    for module in net.modules():
        for parameter in module.parameters(recurse=False):
            name = first[id(parameter)]
            reasons[name] = reasons[name] or _why_in_float(module, parameter)
    if x is not None and not all(reasons.values()):  # a gradient although layers are lent others
        tried = deepcopy(net).train()
        own = {n: tried.get_parameter(n).requires_grad_() for n, why in reasons.items() if not why}
        lent = {name: value.detach().clone().requires_grad_() for name, value in own.items()}
        with seeding.isolated(0, "probe"):
            torch.autograd.backward(Lent(tried, lent)(x).sum())
        reasons |= {n: "is read past its own layer" for n, p in own.items() if p.grad is not None}
    left_out = {n: f"{why} ({net.get_parameter(n).numel()})" for n, why in reasons.items() if why}
    if len(left_out) == len(reasons):
        listed = "; ".join(f"`{name}` {reason}" for name, reason in left_out.items())
        raise ConfigError(
            f"{type(net).__name__} has no layer that can be compressed (linear, convolution, "
            f"embedding, attention, recurrent): {listed or 'it has no parameters'}."
        )
    return [name for name in reasons if name not in left_out], left_out


def _why_in_float(module: nn.Module, parameter: nn.Parameter) -> str:
    if not isinstance(module, _COVERED):
        return f"is of a {type(module).__name__}"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (
        module.padding_idx is not None or module.max_norm is not None or module.sparse
    ):
        return f"is of a {type(module).__name__} with `padding_idx`, `max_norm` or `sparse`"
    kind = str(parameter.dtype).removeprefix("torch.")
    return "" if kind == "float32" else f"is {kind}, not float32"


class Lent(nn.Module):
    """A net that computes with given tensors in the place of its parameters of these names."""

    def __init__(self, net: nn.Module, values: dict[str, Tensor]) -> None:
        super().__init__()
        self.net = net
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        """Call the net; not to be called during other calls of the same net in other threads."""
        # Not by `torch.func.functional_call`: of a module that has two names it restores the
        # parameters twice, and the second time to those that it was lent.
        own = {id(parameter): name for name, parameter in self.net.named_parameters()}
        places = [
            (module, key, parameter)
            for module in self.net.modules()
            for key, parameter in module._parameters.items()
            if parameter is not None and own[id(parameter)] in self.values
        ]
        try:
            for module, key, parameter in places:
                module._parameters[key] = self.values[own[id(parameter)]]  # type: ignore[assignment]
            outputs: Tensor = self.net(x)
        finally:
            for module, key, parameter in places:
                module._parameters[key] = parameter
            for module in {module for module, _, _ in places if isinstance(module, nn.RNNBase)}:
                module._init_flat_weights()  # it keeps a second list of its weights
        return outputs
