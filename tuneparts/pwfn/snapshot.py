"""A few weights of each layer, always the same ones, to see means against deviations.

Shapes: S weights shown of a layer.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tuneparts import seeding
from tuneparts.pwfn.conversion import layers
from tuneparts.training.exhibits import Columns

MAX_SHOWN = 500
"""Most weights of a layer; smaller layers are shown whole."""


def snapshot(net: nn.Module, seed: int) -> dict[str, Tensor]:
    """Means and deviations of the shown weights by layer: (2, S), on the CPU."""
    taken = {}
    for name, layer in layers(net).items():
        mu, sigma = layer.weight.mu.detach().flatten(), layer.weight.sigma.detach().flatten()
        order = torch.randperm(len(mu), generator=seeding.torch_generator(seed, "shown", name))
        places = order[:MAX_SHOWN].sort().values.to(mu.device)
        taken[name] = torch.stack([mu[places], sigma[places]]).cpu()
    return taken


def columns(moments: Mapping[str, Mapping[str, Tensor]]) -> Columns:
    """Snapshots by the moment they were taken at, as a table: layer, moment, mu, sigma."""
    layer: list[str] = []
    moment: list[str] = []
    mu: list[float] = []
    sigma: list[float] = []
    for when, taken in moments.items():
        for name, (mu_S, sigma_S) in taken.items():
            layer += [name] * len(mu_S)
            moment += [when] * len(mu_S)
            mu += mu_S.tolist()
            sigma += sigma_S.tolist()
    return {"layer": layer, "moment": moment, "mu": mu, "sigma": sigma}
