"""Quantisers choose which weights a round fixes, and to which values.

`Clusters` is PWFN (Subia-Waud & Dasmahapatra 2023); the others are what it is compared with: `Wfn`
(Subia-Waud & Dasmahapatra 2022), rounding to the `Nearest` centre, a `KMeans` codebook, and
`Uniform` integers with a scale per channel, which is what a practitioner would use. `Free` fixes
nothing: what the schedule alone does.

Shapes: N all weights of a net, R the free ones, K centres, G channels.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor, nn

from tuneparts.methods.pwfn import _running_mean, _threshold, config
from tuneparts.methods.pwfn._centres import kmeans, nearest, rounding_grid
from tuneparts.methods.pwfn._gaussian import Gaussians
from tuneparts.methods.pwfn._threshold import Clustering, FixingStage, smallest


def fix(
    quantiser: config._Quantiser,
    mu_N: Tensor,
    sigma_N: Tensor,
    fixed_N: Tensor,
    *,
    num_fixed: int,
    rounds_left: int,
) -> Clustering:
    """Fix weights, `rounds_left` before the last round, until `num_fixed` are fixed in all."""
    match quantiser:
        case config._Clusters():
            return _clustered(quantiser, mu_N, sigma_N, fixed_N, num_fixed)
        case config._Nearest():
            largest = mu_N.abs().max().item()
            centres_K = rounding_grid(quantiser.bits, quantiser.max_order, largest)
            target_N = _nearest(mu_N, centres_K)
            if quantiser.zero_rule:
                target_N = target_N.masked_fill(mu_N.abs() < 2.0**-quantiser.bits, 0)
            # A fixed weight stays where it is, also where the zero rule would move it.
            return _rounded(mu_N, sigma_N, target_N, fixed_N, num_fixed=num_fixed, keep=True)
        case config._KMeans():
            target_N = _nearest(mu_N, kmeans(mu_N, quantiser.num_values))
            return _rounded(mu_N, sigma_N, target_N, fixed_N, num_fixed=num_fixed, keep=False)
        case config._Wfn():
            # The released code forgets what was fixed: a weight at a centre usually returns to it.
            return _running_mean.wfn(
                mu_N,
                sigma_N,
                num_fixed,
                distance=min(quantiser.delta * (rounds_left + 1), 0.99),
                smallest=2.0**-quantiser.bits,
                max_order=quantiser.max_order,
            )
        case config._Free():
            return Clustering(mu_N, sigma_N, fixed_N, ())
    raise NotImplementedError(type(quantiser).__name__)


def _clustered(
    quantiser: config._Clusters, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, num_fixed: int
) -> Clustering:
    candidates_N = ~fixed_N if quantiser.monotone else torch.ones_like(fixed_N)
    mu, sigma = mu_N[candidates_N], sigma_N[candidates_N]
    rule = _threshold.cluster if quantiser.rule == "threshold" else _running_mean.cluster
    part = rule(
        mu,
        sigma if quantiser.distance == "sigma" else mu.abs(),
        num_fixed - int((~candidates_N).sum()),
        bits=quantiser.bits,
        max_order=quantiser.max_order,
        delta=quantiser.delta,
        growth=quantiser.growth,
        zero_rule=quantiser.zero_rule,
    )
    # Of all weights only those change that were fixed now.
    out_mu_N, out_sigma_N, out_fixed_N = mu_N.clone(), sigma_N.clone(), fixed_N & ~candidates_N
    where = candidates_N.nonzero().squeeze(1)[part.fixed_N]
    out_mu_N[where] = part.mu_N[part.fixed_N]
    out_sigma_N[where] = part.sigma_N[part.fixed_N]
    out_fixed_N[where] = True
    return Clustering(out_mu_N, out_sigma_N, out_fixed_N, part.stages)


def pull(quantiser: config._Wfn, mu_R: Tensor, centres_K: Tensor, loss: Tensor) -> Tensor:
    """Compute the gradient (R,) of the term that draws free weights, at least one, to centres."""
    term, slope_R = _running_mean.attraction(
        mu_R, centres_K, temperature=quantiser.temperature, zero_below=2.0**-quantiser.bits
    )
    # Scaled so that the term is this share of the loss, unless all weights are at a centre.
    scale = torch.where(term > 0, quantiser.ratio * loss.detach() / term, 0.0)
    return slope_R * scale


def codes(quantiser: config._Uniform, mu_N: Tensor, channels: "Channels") -> tuple[Tensor, Tensor]:
    """Find the integer of each weight (N,), and the scale of each channel (G,)."""
    most, most_of_bias = (2 ** (bits - 1) - 1 for bits in (quantiser.bits, max(quantiser.bits, 8)))
    most_G = torch.where(channels.is_bias_G, most_of_bias, most)
    largest_G = mu_N.new_zeros(len(most_G)).scatter_reduce_(0, channels.of_N, mu_N.abs(), "amax")
    scale_G = torch.where(largest_G > 0, largest_G / most_G, 1.0)
    return (mu_N / scale_G[channels.of_N]).round(), scale_G


def rounded(quantiser: config._Uniform, mu_N: Tensor, channels: "Channels") -> Tensor:
    code_N, scale_G = codes(quantiser, mu_N, channels)
    return code_N * scale_G[channels.of_N]


def quota(num_weights: int, fraction: float) -> int:
    """Round up a fraction of all weights, as it is written in decimal: 0.07 * 100 would be 8."""
    return math.ceil(Fraction(str(fraction)) * num_weights)


@dataclass(frozen=True)
class Channels:
    of_N: Tensor
    """Number of the channel: int64 (N,)."""
    is_bias_G: Tensor


def channels_of(gaussians: Gaussians, net: nn.Module) -> Channels:
    """Number the output channels of all covered tensors; a vector is one channel."""
    of: list[Tensor] = []
    is_bias: list[bool] = []
    for name, mu in gaussians.mus.items():
        layer = net.get_submodule(name.rpartition(".")[0])
        side = 1 if isinstance(layer, nn.modules.conv._ConvTransposeNd) else 0
        num = 1 if mu.ndim < 2 else mu.shape[side]
        shape = [-1 if at == side else 1 for at in range(mu.ndim)]
        own = torch.arange(num, device=mu.device).view(shape if num > 1 else [1] * mu.ndim)
        of.append((own + len(is_bias)).expand(mu.shape).flatten())
        is_bias += [mu.ndim < 2] * num
    return Channels(torch.cat(of), torch.tensor(is_bias, device=of[0].device))


def _nearest(mu_N: Tensor, centres_K: Tensor) -> Tensor:
    on_device = centres_K.to(mu_N.device)
    return on_device[nearest(mu_N.double(), on_device)]


def _rounded(
    mu_N: Tensor, sigma_N: Tensor, target_N: Tensor, fixed_N: Tensor, *, num_fixed: int, keep: bool
) -> Clustering:
    """Fix the weights closest to their targets, at deviation 0; with `keep` fixed ones stay."""
    distance_N = (mu_N.double() - target_N).abs()
    if keep:
        distance_N = distance_N.masked_fill(fixed_N, -1)
        target_N = torch.where(fixed_N, mu_N.double(), target_N)
    chosen_N = smallest(distance_N, num_fixed)
    return Clustering(
        torch.where(chosen_N, target_N.to(mu_N.dtype), mu_N),
        sigma_N.masked_fill(chosen_N, 0),
        chosen_N,
        (FixingStage(1, 0.0, num_fixed),),
    )
