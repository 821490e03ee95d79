"""L_ML as a number: how well each chunk is predicted by the subnetwork that never saw it.

L_ML = sum over k = 2..C of log p(D_k | w^(k-1), psi) (Mlodozeniec et al. 2023, equation 4), on
whole chunks. It selects among hypers without gradients and among moments of a run. Values of
different chunk proportions are not comparable: early terms come from weaker subnetworks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tuneparts.data.chunks import Chunks
from tuneparts.data.device_examples import DeviceExamples


@dataclass(frozen=True)
class Evidence:
    """The terms of L_ML in nats."""

    sums: Mapping[int, float]
    """Log-likelihood of chunk k under subnetwork k - 1, for k = 2..C."""
    num_examples: Mapping[int, int]

    @property
    def total(self) -> float:
        """L_ML."""
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
    """Evaluate L_ML on the whole of chunks 2..C, in double precision.

    Where `predict` draws random numbers, it is the mean over draws of the log-likelihood, which is
    what the gradients of hyper steps are of.

    Args:
        predict: (level, inputs) to outputs (B, K) of that subnetwork.
        examples: all training data.
        chunks: its chunks; those of size zero have no term.
        loss: the negative log-likelihood, `loss(outputs, y, reduction=...)`.
        batch_size: inputs per call of `predict`.
        num_draws: calls of `predict` for each batch.
    """
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for k in range(2, len(chunks) + 1):
        indices_N = torch.from_numpy(chunks.chunk(k).copy())
        if not len(indices_N):
            continue
        terms = []
        for indices_B in torch.split(indices_N, batch_size):
            x, y_B = examples.take(indices_B)
            for _ in range(num_draws):
                terms.append(-loss(predict(k - 1, x).double(), y_B, reduction="sum"))
        sums[k] = float(torch.stack(terms).sum()) / num_draws
        counts[k] = len(indices_N)
    return Evidence(sums, counts)
