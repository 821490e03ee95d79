"""What partitioned training is made of: which examples a step sees, how it moves, and L_ML.

Partitions and batches are drawn by named streams of their own, one per chunk, so that leaving out
hyperparameter steps, or changing a later chunk, shifts no draw of the updates of earlier ones.

An ordinary optimiser is wrong for partitions (Mlodozeniec et al. 2023, I.1): where the gradient is
zero it would still decay momentum, move by Adam's moments, and shrink weights. Here torch's own
update rules run on the entries that one partition owns, and no other entry is touched.

L_ML = sum over k = 2..C of log p(D_k | w^(k-1), psi) (equation 4), on whole chunks, selects among
hyperparameters without gradients and among moments of a run. Values of different chunk proportions
are not comparable: early terms come from weaker subnetworks.

Shapes: B examples in a batch, m entries of a parameter that one partition owns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from tuneparts.core import seeding
from tuneparts.data.batches import Batches
from tuneparts.data.chunks import Chunks
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.methods.partitioned.config import DecayScaling
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.layers import SCALARS, names_of
from tuneparts.training.config import Adam, AnyOptimiser
from tuneparts.training.state import Stateful

_POWERS: Mapping[DecayScaling, float] = {"reciprocal": 1.0, "sqrt": 0.5, "off": 0.0}


class _ChunkStream(Stateful, parts=("_draws", "_mixing", "_batches")):
    """Draws a number k by the sizes of chunks, then a batch with replacement from its source."""

    def __init__(
        self,
        sources: Mapping[int, npt.NDArray[np.int64]],
        chunks: Chunks,
        *,
        batch_size: int,
        seed: int,
        name: str,
    ) -> None:
        self._sources = {k: torch.from_numpy(indices.copy()) for k, indices in sources.items()}
        self._odds = torch.tensor([chunks.sizes[k - 1] for k in sources], dtype=torch.float64)
        self._draws = seeding.torch_generator(seed, name, "partition")
        self._mixing = seeding.torch_generator(seed, name, "mixed batch")
        self._size = batch_size
        how: dict[str, Any] = {"seed": seed, "replacement": True}
        self._batches = {
            k: Batches(len(source), batch_size, stream=(name, "batch", k), **how)
            for k, source in sources.items()
        }

    def next(self) -> tuple[int, Tensor]:
        """A number k and the indices (B,) of a batch of its examples."""
        position = torch.multinomial(self._odds, 1, generator=self._draws)
        k = list(self._sources)[int(position)]
        return k, self._sources[k][self._batches[k].next()]

    def next_mixed(self) -> tuple[Tensor, Tensor]:
        """A number per example (B,), ascending, and the examples' indices (B,)."""
        drawn_B = torch.multinomial(self._odds, self._size, replacement=True, generator=self._draws)
        counts = torch.bincount(drawn_B, minlength=len(self._sources)).tolist()
        numbers, indices = [], []
        for (k, source), count in zip(self._sources.items(), counts, strict=True):
            numbers.append(torch.full((count,), k))
            indices.append(source[torch.randint(len(source), (count,), generator=self._mixing)])
        return torch.cat(numbers), torch.cat(indices)


def _weight_stream(chunks: Chunks, own: Sequence[int], batch_size: int, seed: int) -> _ChunkStream:
    """For updates: k among partitions that own weights; examples of D_1:k."""
    sources = {k: chunks.cumulative(k) for k in own if chunks.sizes[k - 1]}
    return _ChunkStream(sources, chunks, batch_size=batch_size, seed=seed, name="weight steps")


def _hyper_stream(chunks: Chunks, batch_size: int, seed: int) -> _ChunkStream | None:
    """For hyperparameters: k in 2..C; examples of D_k alone. None without such a chunk."""
    sources = {k: chunks.chunk(k) for k in range(2, len(chunks) + 1) if chunks.sizes[k - 1]}
    how: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "name": "hyper steps"}
    return _ChunkStream(sources, chunks, **how) if sources else None


def decay_factors(chunk_sizes: Sequence[int], scaling: DecayScaling) -> tuple[float, ...]:
    """Weight decay of each partition relative to the config's: (N / |D_1:k|) ** p.

    The prior's precision counts against the examples that a partition is trained on, so earlier
    partitions decay more; p is 1 for "reciprocal", 1/2 for "sqrt" and 0 for "off".
    """
    total = sum(chunk_sizes)
    seen = [sum(chunk_sizes[:k]) for k in range(1, len(chunk_sizes) + 1)]
    return tuple((total / n) ** _POWERS[scaling] for n in seen)


class PartitionedOptimiser(Stateful, values=("num_steps", "_moments")):
    """SGD or Adam with a state and a step count of their own per partition.

    The weight decay of partition k is multiplied by its decay factor.
    """

    def __init__(
        self, parts: PartitionedNet, config: AnyOptimiser, *, decay_factors: Sequence[float]
    ) -> None:
        self._parts = parts
        self._config = config
        self._decay_factors = tuple(decay_factors)
        self._scalars = frozenset(names_of(parts.net, SCALARS))
        self.num_steps = dict.fromkeys(range(1, parts.num_partitions + 1), 0)
        self._moments: dict[int, dict[str, list[Tensor]]] = {k: {} for k in self.num_steps}

    @torch.no_grad()
    def step(self, k: int, grads: Sequence[Tensor | None], *, lr: float) -> None:
        """Move what partition k owns at the rate of this moment of the whole run.

        There is a gradient for each share of it, in the shape of the whole parameter; None where
        the loss does not depend on it.
        """
        given = [
            (share, share.gather(grad))
            for share, grad in zip(self._parts.shares(k), grads, strict=True)
            if grad is not None
        ]
        for is_scalar in (False, True):
            chosen = [(s, grad) for s, grad in given if (s.name in self._scalars) is is_scalar]
            if not chosen:
                continue
            shares, moving = map(list, zip(*chosen, strict=True))
            values = [share.gather(share.flat_n) for share in shares]
            factor = self._config.scalar_lr_factor if is_scalar else 1.0
            self._move(k, [share.name for share in shares], values, moving, lr=lr * factor)
            for share, value in zip(shares, values, strict=True):
                share.scatter(value)
        self.num_steps[k] += 1

    def _move(
        self, k: int, names: list[str], values: list[Tensor], grads: list[Tensor], *, lr: float
    ) -> None:
        """Move what partition k owns (m,) of each named parameter, in place."""
        config, moments = self._config, self._moments[k]
        decay = config.weight_decay * self._decay_factors[k - 1]
        how: dict[str, Any] = {"lr": lr, "weight_decay": decay, "maximize": False}
        if isinstance(config, Adam):
            for name, value in zip(names, values, strict=True):
                if name not in moments:
                    moments[name] = [torch.zeros_like(value), torch.zeros_like(value)]
            first, second = ([moments[name][i] for name in names] for i in (0, 1))
            steps = list(values[0].new_full((len(names),), float(self.num_steps[k])).unbind())
            how |= {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "fused": True}
            adam(values, grads, first, second, [], steps, **how)
            return
        buffers = [moments[name][0] if name in moments else None for name in names]
        how |= {"momentum": config.momentum, "nesterov": config.nesterov}
        sgd(values, grads, buffers, dampening=0.0, **how)
        for name, buffer in zip(names, buffers, strict=True):
            if buffer is not None:
                moments[name] = [buffer]

    @property
    def state_device(self) -> torch.device:
        return next(self._parts.net.parameters()).device


@dataclass(frozen=True)
class Evidence:
    """The terms of L_ML in nats."""

    sums: Mapping[int, float]
    """Log-likelihood of chunk k under subnetwork k - 1, for k = 2..C."""
    num_examples: Mapping[int, int]

    @property
    def total(self) -> float:
        return sum(self.sums.values())

    def metrics(self) -> dict[str, float]:
        """Total, mean per example, and mean per example of each term, by schema name."""
        return {
            "lml/total": self.total,
            "lml/per_example": self.total / sum(self.num_examples.values()),
            **{f"lml/term.{k}": value / self.num_examples[k] for k, value in self.sums.items()},
        }


@torch.no_grad()
def evidence(
    predict: Callable[[int, Tensor], Tensor],
    examples: DeviceExamples,
    chunks: Chunks,
    *,
    loss: Callable[..., Tensor],
    batch_size: int,
    num_draws: int = 1,
) -> Evidence:
    """Evaluate L_ML on the whole of chunks 2..C, in double precision; empty ones have no term.

    `predict` maps a level and inputs to outputs (B, K) of that subnetwork, and `loss` is minus the
    log-likelihood of outputs. Where `predict` draws random numbers, it is called `num_draws` times
    for each batch: hyperparameter steps descend the mean.
    """
    sums: dict[int, float] = {}
    counts = {k: size for k, size in enumerate(chunks.sizes, start=1) if size and k > 1}
    for k in counts:
        terms = []
        for indices_B in torch.split(torch.from_numpy(chunks.chunk(k).copy()), batch_size):
            x, y_B = examples.take(indices_B)
            for _ in range(num_draws):
                terms.append(-loss(predict(k - 1, x).double(), y_B, reduction="sum"))
        sums[k] = float(torch.stack(terms).sum()) / num_draws
    return Evidence(sums, counts)
