"""Standard deviations of weights (Subia-Waud & Dasmahapatra 2023).

Start (appendix, equations 8 and 9): a weight that lies on a power of two need not move and starts
with no noise; one at 4/3 of a power of two is relatively furthest from both neighbours and starts
with most. With the mantissa m = |mu| / 2^floor(log2 |mu|) in [1, 2), the product of the relative
distances is r = (2 - m)(m - 1) / m^2: zero at m = 1, and at most 1/8, at m = 4/3.

Growth: a regulariser pulls deviations up to a cutoff S. Weights whose noise hurts the loss resist
it, so that sigma becomes a budget for how far each weight may move. On a locally quadratic loss
with curvature h, the squared form settles at S * kappa / (kappa + h), kappa = alpha * sqrt(2 / pi).

Shapes: N all weights of a net, S weights shown of a layer.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tuneparts.core import seeding
from tuneparts.methods.pwfn._gaussian import FLOOR, Gaussians, blocks
from tuneparts.methods.pwfn.config import Control, PullForm, StartForm
from tuneparts.training.learner import Columns

SCALE = 0.0025
"""Third quartile of the initial standard deviations of a tensor."""
CEILING = 0.05
"""Largest initial standard deviation."""
MAX_SHOWN = 500
"""Most weights of a layer in a snapshot; smaller layers are shown whole."""


def initial(mu: Tensor, form: StartForm = "product") -> Tensor:
    """Initial standard deviations of a tensor of means; zeros take the floor and do not count."""
    # From the mantissa instead of logarithms: in the released code a weight of exactly 0 gives
    # 0 / 0 and makes its whole tensor NaN.
    mantissa = 2 * torch.frexp(mu.detach().abs()).mantissa
    product = (2 - mantissa) * (mantissa - 1) / mantissa.square()
    is_zero = mu == 0
    product = torch.where(is_zero, 0.0, product)
    upper = torch.where(mantissa == 1, 0.0, (2 - mantissa) / mantissa)
    quartile = _third_quartile((product if form == "product" else upper)[~is_zero])
    # A tensor that lies on powers of two almost everywhere has no scale of its own; 1/8 is the
    # most that r can be.
    spread = quartile if quartile > 0 else 1 / 8
    return (SCALE * product / spread).clamp(FLOOR, CEILING)


@torch.no_grad()
def initialise(gaussians: Gaussians, start: StartForm | float = "product") -> None:
    """Set every standard deviation in place, by form or all to one number."""
    for name, part in gaussians.parts(gaussians.sigma).items():
        if isinstance(start, str):
            part.copy_(initial(gaussians.mus[name], start))
        else:
            part.fill_(max(start, FLOOR))


def _third_quartile(values: Tensor) -> float:
    """Interpolate the third quartile linearly, as `torch.quantile` does up to 2^24 elements."""
    num = values.numel()
    if not num:
        return 0.0
    position = 0.75 * (num - 1)
    below = int(position)
    low, high = (values.kthvalue(min(below + k, num)).values.item() for k in (1, 2))
    return low + (high - low) * (position - below)


def reach(gaussians: Gaussians, cutoff: float, *, fixed_too: bool = False) -> Tensor:
    """The vector (N,) for `pull`: S where a weight is pulled, -inf elsewhere, as at all biases."""
    is_pulled_N = gaussians.fixed.logical_not() | fixed_too
    for name, part in gaussians.parts(is_pulled_N).items():
        if is_bias(name):
            part.fill_(False)
    nothing = torch.full_like(gaussians.sigma, -math.inf)
    return nothing.masked_fill_(is_pulled_N, cutoff).detach()


@torch.no_grad()
def pull(
    gaussians: Gaussians,
    reach_N: Tensor,
    eps_N: Tensor,
    *,
    alpha: float,
    form: PullForm = "squared",
    scale: Tensor | float = 1.0,
) -> None:
    """Scale the gradient of deviations and add that of the regulariser; overwrites `eps_N`."""
    # Straight into the gradient, as in the authors' code: a term of the loss would build a graph
    # over every weight only to arrive at this one expression. On a CPU in blocks that stay in the
    # cache: the time of each line is that of reading memory.
    assert gaussians.sigma.grad is not None
    vectors = (gaussians.sigma.grad, gaussians.sigma.detach(), reach_N, eps_N)
    for grad, sigma, most, eps in blocks(*vectors):
        short = (most - sigma).clamp_(min=0)
        grad.mul_(scale)
        if form == "hinge":
            grad.sub_(short.sign_(), alpha=alpha)
        else:
            grad.addcmul_(short, eps.abs_(), value=-alpha)


def controlled(
    sigma_N: Tensor, fixed_N: Tensor, control: Control, generator: torch.Generator
) -> Tensor:
    """Replace the free weights' deviations (N,) by those that clustering is shown."""
    free = (~fixed_N).nonzero().squeeze(1)
    if control == "learnt" or not len(free):
        return sigma_N
    shown_N = sigma_N.clone()
    if control == "constant":
        shown_N[free] = sigma_N[free].median()
    else:
        order = torch.randperm(len(free), generator=generator, device=generator.device)
        shown_N[free] = sigma_N[free[order.to(free.device)]]
    return shown_N


def snapshot(gaussians: Gaussians, seed: int) -> dict[str, Tensor]:
    """Take means and deviations (2, S) of a few weights of each layer, always the same ones."""
    taken = {}
    for name, part in gaussians.parts(gaussians.sigma.detach()).items():
        if is_bias(name):
            continue
        layer = name.removesuffix(".weight")
        mu, sigma = gaussians.mus[name].detach().flatten(), part.flatten()
        order = torch.randperm(len(mu), generator=seeding.torch_generator(seed, "shown", layer))
        places = order[:MAX_SHOWN].sort().values.to(mu.device)
        taken[layer] = torch.stack([mu[places], sigma[places]]).cpu()
    return taken


def is_bias(name: str) -> bool:
    return "bias" in name.rpartition(".")[2]


def columns(moments: Mapping[str, Mapping[str, Tensor]]) -> Columns:
    rows = [
        (layer, moment, mu, sigma)
        for moment, taken in moments.items()
        for layer, shown_2S in taken.items()
        for mu, sigma in shown_2S.T.tolist()
    ]
    names = ("layer", "moment", "mu", "sigma")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}
