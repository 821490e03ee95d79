"""Quantisers choose which weights a round fixes, and to which values.

`Clusters` is PWFN (Subia-Waud & Dasmahapatra 2023); the others are what it is compared with: `Wfn`
(Subia-Waud & Dasmahapatra 2022), rounding to the `Nearest` centre, a `KMeans` codebook, and
`Uniform` integers with a scale per channel, which is what a practitioner would use. `Free` fixes
nothing: what the schedule alone does.

Shapes: N all weights of a net, R the free ones, K centres, G channels.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from tuneparts.core.config import Config
from tuneparts.methods.pwfn import running_mean, threshold, wfn
from tuneparts.methods.pwfn.centres import grid_integers, kmeans, nearest, rounding_grid
from tuneparts.methods.pwfn.gaussian import Gaussians
from tuneparts.methods.pwfn.threshold import Clustering, FixingStage, smallest


class Quantiser(Config):
    """Base of the quantisers: `fix` ends a round; `pull` may add a term to the loss before it."""

    uses_sigma: ClassVar[bool] = False
    """Whether training samples weights and learns their standard deviations."""

    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        """Fix weights until exactly `num_fixed` are fixed in all.

        Args:
            mu_N: means.
            sigma_N: standard deviations.
            fixed_N: mask of those that are fixed so far, at most `num_fixed`.
            num_fixed: how many shall be fixed after the round.
            rounds_left: number of rounds after this one.
        """
        raise NotImplementedError

    @property
    def pulls(self) -> bool:
        """Whether the quantiser adds a term to the loss, whose gradient is `pull`."""
        return False

    def pull(self, mu_R: Tensor, centres_K: Tensor, loss: Tensor) -> Tensor:
        """Compute the gradient (R,) of the quantiser's own term of the loss.

        Args:
            mu_R: means of the free weights, at least one.
            centres_K: values that weights are fixed to so far, at least one.
            loss: the loss of the task in this step.
        """
        raise NotImplementedError


class Clusters(Quantiser):
    """PWFN: the centre within whose reach most weights lie takes them, one centre after another.

    Reach is a distance in standard deviations: |c - mu| / sigma.

    Example:
        >>> import torch
        >>> mu, sigma = torch.tensor([0.26, 0.51, 0.13]), torch.full((3,), 0.01)
        >>> none = torch.zeros(3, dtype=torch.bool)
        >>> Clusters().fix(mu, sigma, none, num_fixed=3, rounds_left=0).mu_N.tolist()
        [0.25, 0.5, 0.125]
    """

    uses_sigma: ClassVar[bool] = True
    kind: Literal["clusters"] = "clusters"
    """Which rule chooses the values that weights are fixed on."""
    bits: int = Field(default=7, ge=0, le=16)
    """The smallest power of two is 2^-bits."""
    max_order: int = Field(default=4, ge=1, le=8)
    """Most powers of two in a sum."""
    delta: float = Field(default=1.0, gt=0)
    """The first threshold of a round, in standard deviations."""
    growth: float = Field(default=2.0, gt=1)
    """Factor by which the threshold grows when nothing is within it."""
    zero_rule: bool = True
    """Weights below 2^-bits are at no distance from 0."""
    rule: Literal["threshold", "running_mean"] = "threshold"
    """`threshold` as in the authors' code, `running_mean` as in the printed algorithm."""
    distance: Literal["sigma", "relative"] = "sigma"
    """In standard deviations (`sigma`), or `relative` to the weight itself as in WFN."""
    monotone: bool = False
    """Keep what is fixed; otherwise every round clusters all weights anew, as the authors' code."""

    @model_validator(mode="after")
    def _check_rules_agree(self) -> Self:
        if self.distance == "relative" and self.delta >= 1:
            raise ValueError(
                "every weight is at relative distance 1 from 0: `delta < 1` must hold with "
                f"`distance = relative`, but got {self.delta}. WFN used 0.0075 to 0.015"
            )
        if self.rule == "running_mean" and not self.monotone:
            raise ValueError(
                "the printed algorithm keeps what is fixed: set `monotone` with `running_mean`. "
                "Its clusters are wide, and clustered anew weights walk from centre to centre"
            )
        return self

    @override
    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        candidates_N = ~fixed_N if self.monotone else torch.ones_like(fixed_N)
        num_to_fix = num_fixed - int((~candidates_N).sum())
        mu, sigma = mu_N[candidates_N], sigma_N[candidates_N]
        scale = sigma if self.distance == "sigma" else mu.abs()
        if self.rule == "threshold":
            part = threshold.cluster(
                mu,
                scale,
                num_to_fix,
                bits=self.bits,
                max_order=self.max_order,
                delta=self.delta,
                growth=self.growth,
                zero_rule=self.zero_rule,
            )
        else:
            part = running_mean.cluster(
                mu,
                scale,
                num_to_fix,
                centres=self._centres,
                max_order=self.max_order,
                delta=self.delta,
                growth=self.growth,
                zero_below=2.0**-self.bits if self.zero_rule else 0.0,
            )
        return _merged(part, mu_N, sigma_N, fixed_N, candidates_N)

    def _centres(self, order: int, largest: float) -> Tensor:
        return grid_integers(self.bits, order, largest).double().mul(2.0**-self.bits)


class Nearest(Quantiser):
    """Rounding to the nearest centre of the same grid, closest weights first."""

    kind: Literal["nearest"] = "nearest"
    bits: int = Field(default=7, ge=0, le=16)
    max_order: int = Field(default=4, ge=1, le=8)
    """1 allows powers of two only."""
    zero_rule: bool = True

    @override
    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        centres_K = rounding_grid(self.bits, self.max_order, mu_N.abs().max().item()).to(
            mu_N.device
        )
        target_N = centres_K[nearest(mu_N.double(), centres_K)]
        if self.zero_rule:
            target_N = target_N.masked_fill(mu_N.abs() < 2.0**-self.bits, 0)
        # A fixed weight is on the grid, but what is below the zero rule's bound may not lead it.
        return _rounded(mu_N, sigma_N, target_N, fixed_N, num_fixed=num_fixed, keep=True)


class KMeans(Quantiser):
    """A codebook of arbitrary values: k-means over all weights of the net, anew in each round."""

    kind: Literal["kmeans"] = "kmeans"
    num_values: int = Field(default=64, ge=1)

    @override
    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        centres_K = kmeans(mu_N, self.num_values).to(mu_N.device)
        target_N = centres_K[nearest(mu_N.double(), centres_K)]
        return _rounded(mu_N, sigma_N, target_N, fixed_N, num_fixed=num_fixed, keep=False)


class Wfn(Quantiser):
    """Weight Fixing Networks (Subia-Waud & Dasmahapatra 2022).

    Clusters by relative distances, with a bound that is loose in early rounds, and a term of the
    loss (`wfn.attraction`) that draws free weights to the centres found so far.
    """

    kind: Literal["wfn"] = "wfn"
    delta: float = Field(default=0.01, gt=0, lt=1)
    """Relative distance that a weight may move on average in the last round; in the one before it
    twice as far, and so on."""
    bits: int = Field(default=7, ge=0, le=16)
    """Weights below 2^-bits are fixed to 0."""
    max_order: int = Field(default=21, ge=1, le=21)
    """Most signed powers of two in a sum."""
    ratio: float = Field(default=0.4, ge=0)
    """Size of the term that draws free weights to centres, relative to the task's loss."""
    temperature: float = Field(default=0.05, gt=0)
    """How much centres other than the relatively nearest one draw."""

    @override
    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        # The released code forgets what was fixed: a weight at a centre usually returns to it.
        return wfn.cluster(
            mu_N,
            sigma_N,
            num_fixed,
            distance=min(self.delta * (rounds_left + 1), 0.99),
            smallest=2.0**-self.bits,
            max_order=self.max_order,
        )

    @property
    @override
    def pulls(self) -> bool:
        return self.ratio > 0

    @override
    def pull(self, mu_R: Tensor, centres_K: Tensor, loss: Tensor) -> Tensor:
        term, slope_R = wfn.attraction(
            mu_R, centres_K, temperature=self.temperature, zero_below=2.0**-self.bits
        )
        # Scaled so that the term is this share of the loss, unless all weights are at a centre.
        scale = torch.where(term > 0, self.ratio * loss.detach() / term, 0.0)
        return slope_R * scale


class Uniform(Quantiser):
    """Integers from -(2^(bits-1) - 1) to 2^(bits-1) - 1, times one scale per output channel.

    The scale makes the largest weight of a channel the largest integer. Biases have one scale and
    at least 8 bits. All weights are rounded at once, by `rounded`, after the last pass.
    """

    kind: Literal["uniform"] = "uniform"
    bits: int = Field(default=8, ge=2, le=8)
    aware: bool = False
    """Whether training computes with rounded weights, and gradients pass straight through to those
    behind them (quantisation-aware training); otherwise it is post-training quantisation."""

    def codes(self, mu_N: Tensor, channels: "Channels") -> tuple[Tensor, Tensor]:
        """Find the integer of each weight (N,), and the scale of each channel (G,)."""
        most, most_of_bias = (2 ** (bits - 1) - 1 for bits in (self.bits, max(self.bits, 8)))
        most_G = torch.where(channels.is_bias_G, most_of_bias, most)
        largest_G = mu_N.new_zeros(len(most_G)).scatter_reduce_(
            0, channels.of_N, mu_N.abs(), "amax"
        )
        scale_G = torch.where(largest_G > 0, largest_G / most_G, 1.0)
        return (mu_N / scale_G[channels.of_N]).round(), scale_G

    def rounded(self, mu_N: Tensor, channels: "Channels") -> Tensor:
        """Round every weight: (N,)."""
        code_N, scale_G = self.codes(mu_N, channels)
        return code_N * scale_G[channels.of_N]


class Free(Quantiser):
    """No fixing: weights stay as they are, after the same schedule of rounds."""

    kind: Literal["free"] = "free"

    @override
    def fix(
        self, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, *, num_fixed: int, rounds_left: int
    ) -> Clustering:
        return Clustering(mu_N, sigma_N, fixed_N, ())


@dataclass(frozen=True)
class Channels:
    """The output channel of each weight."""

    of_N: Tensor
    """Number of the channel: int64 (N,)."""
    is_bias_G: Tensor


AnyQuantiser: TypeAlias = Annotated[
    Clusters | Nearest | KMeans | Wfn | Uniform | Free, Field(discriminator="kind")
]


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


def _merged(
    part: Clustering, mu_N: Tensor, sigma_N: Tensor, fixed_N: Tensor, candidates_N: Tensor
) -> Clustering:
    """Extend a clustering of the candidates to all weights; only what it fixed changes."""
    out_mu_N, out_sigma_N, out_fixed_N = mu_N.clone(), sigma_N.clone(), fixed_N & ~candidates_N
    where = candidates_N.nonzero().squeeze(1)[part.fixed_N]
    out_mu_N[where] = part.mu_N[part.fixed_N]
    out_sigma_N[where] = part.sigma_N[part.fixed_N]
    out_fixed_N[where] = True
    return Clustering(out_mu_N, out_sigma_N, out_fixed_N, part.stages)


def _rounded(
    mu_N: Tensor,
    sigma_N: Tensor,
    target_N: Tensor,
    fixed_N: Tensor,
    *,
    num_fixed: int,
    keep: bool,
) -> Clustering:
    """Fix the weights that are closest to their targets; their deviation becomes 0.

    Args:
        mu_N: means.
        sigma_N: standard deviations.
        target_N: the value that each weight would be fixed to.
        fixed_N: mask of those that are fixed so far.
        num_fixed: how many shall be fixed.
        keep: whether weights that are fixed stay so, at their value.
    """
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
