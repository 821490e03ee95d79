"""Who holds which data: clients of equal size with skewed labels or rotations.

Each client draws its own mixture of groups from a Dirichlet distribution around the mixture of the
whole, and is filled from it without replacement; a group that runs out is left out of the mixture
(Hsu et al. 2019; Reddi et al. 2020). Groups are labels, or bins of the angle that an image was
turned by (Mlodozeniec et al. 2023, appendix J).

Shapes: N examples, G groups, n examples of a client.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tuneparts.core import seeding
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import sizes
from tuneparts.data.task import Examples

Indices = npt.NDArray[np.int64]


class ClientsConfig(Config):
    """How training data is dealt out; its own seed keeps it fixed across methods and seeds."""

    num: int = Field(default=10, ge=1)
    """Clients, all of the same size up to one example."""
    skew: Literal["auto", "none", "labels", "rotation"] = "auto"
    """What clients differ in; `auto`: rotation where images were rotated, labels elsewhere, and
    nothing where labels are no classes."""
    alpha: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Concentration: clients of a small one hold a single group, of a large one all alike."""
    rotation_alpha: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The same where clients differ in rotation; as `alpha` if None."""
    num_bins: int = Field(default=10, ge=2)
    """Bins of the full circle, where clients differ in rotation."""
    seed: int = 0
    """Chooses who holds what; not the seed of a run."""

    def deal(self, examples: Examples) -> list[Indices]:
        """The examples of each client: int64 (n,), ascending, disjoint, and all of them."""
        if len(examples) < self.num:
            raise ConfigError(
                f"every client needs an example, but there are {len(examples)} for {self.num} "
                "clients. Use more training data or fewer clients."
            )
        skew = self.skew_of(examples)
        given = self.rotation_alpha if skew == "rotation" else None
        return split(
            self._groups(examples, skew),
            num_clients=self.num,
            alpha=given or self.alpha,
            generator=seeding.numpy_generator(self.seed, "federated", "clients"),
        )

    def skew_of(self, examples: Examples) -> str:
        """What clients of these examples differ in; refuses what these examples do not have."""
        has_classes = examples.labels.ndim == 1 and examples.labels.dtype == np.int64
        if self.skew == "auto":
            by_label = "labels" if has_classes else "none"
            return by_label if examples.degrees is None else "rotation"
        if self.skew == "labels" and not has_classes:
            raise ConfigError(
                "clients can differ in labels only where labels are classes, but these are "
                f"{examples.labels.dtype} {examples.labels.shape}. Set `skew` to `none`."
            )
        if self.skew == "rotation" and examples.degrees is None:
            raise ConfigError(
                "clients can differ in rotation only where images were rotated, but this data "
                "has no angles. Set `rotated` in the data config, or another `skew`."
            )
        return self.skew

    def _groups(self, examples: Examples, skew: str) -> Indices:
        if skew == "none":
            return np.zeros(len(examples), np.int64)
        if skew == "labels":
            return examples.labels
        assert examples.degrees is not None  # or `skew_of` would have refused
        turned = (examples.degrees + 180.0) / 360.0
        return np.clip(np.floor(turned * self.num_bins), 0, self.num_bins - 1).astype(np.int64)


def split(
    groups_N: Indices, *, num_clients: int, alpha: float, generator: np.random.Generator
) -> list[Indices]:
    """Deal out examples to clients of equal size, each with a mixture of groups of its own.

    Args:
        groups_N: the group of each example.
        num_clients: how many clients; sizes differ by at most one.
        alpha: a client's mixture is Dirichlet with parameters alpha times the overall mixture.
        generator: source of all draws.

    Returns:
        Ascending indices per client; a partition of all N.
    """
    names, counts_G = np.unique(groups_N, return_counts=True)
    pools = [generator.permutation(np.flatnonzero(groups_N == name)) for name in names]
    left_G = counts_G.copy()
    clients = []
    for size in sizes(len(groups_N), (1.0,) * num_clients):
        mixture_G = generator.dirichlet(alpha * counts_G / counts_G.sum())
        taken_G = _fill(size, mixture_G, left_G, generator)
        ends = zip(pools, left_G, taken_G, strict=True)
        own = np.concatenate([pool[rest - taken : rest] for pool, rest, taken in ends])
        left_G -= taken_G
        clients.append(np.sort(own).astype(np.int64))
    return clients


def _fill(
    size: int,
    mixture_G: npt.NDArray[np.float64],
    left_G: Indices,
    generator: np.random.Generator,
) -> Indices:
    """How many examples of each group a client gets.

    What a group cannot give is drawn again from the groups that still can, which is the same in
    law as drawing example by example and dropping a group once it is empty.
    """
    taken_G = np.zeros_like(left_G)
    while (missing := size - int(taken_G.sum())) > 0:
        rest_G = left_G - taken_G
        weights_G = np.where(rest_G > 0, mixture_G, 0.0)
        if not weights_G.sum() > 0:  # a small alpha puts all its mass on groups that are empty
            weights_G = rest_G.astype(float)
        drawn_G = generator.multinomial(missing, weights_G / weights_G.sum())
        taken_G += np.minimum(drawn_G, rest_G)
    return taken_G
