"""Which chunk and which examples each step of partitioned training sees.

Partitions and batches are drawn by named streams of their own, one per chunk, so that leaving out
hyper steps, or changing a later chunk, shifts no draw of the weight steps of earlier ones.

Shapes: B examples in a batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuneparts.core import seeding
from tuneparts.data.batches import Batches
from tuneparts.data.chunks import Chunks
from tuneparts.training.state import Stateful


class ChunkStream(Stateful, parts=("_draws", "_mixing", "_batches")):
    """Draws a number k by given odds, then a batch with replacement from the examples of k.

    Args:
        sources: by k, the indices (N_k,) to draw from.
        odds: by k, how often; need not sum to one.
        batch_size: B.
        seed: of the run.
        name: of the stream.
    """

    def __init__(
        self,
        sources: Mapping[int, Tensor],
        odds: Mapping[int, float],
        *,
        batch_size: int,
        seed: int,
        name: str,
    ) -> None:
        self.numbers = list(sources)
        self._sources = dict(sources)
        self._odds = torch.tensor([odds[k] for k in self.numbers], dtype=torch.float64)
        self._draws = seeding.torch_generator(seed, name, "partition")
        self._mixing = seeding.torch_generator(seed, name, "mixed batch")
        self._batch_size = batch_size
        self._batches = {
            k: Batches(
                len(source), batch_size, seed=seed, stream=(name, "batch", k), replacement=True
            )
            for k, source in sources.items()
        }

    def next(self) -> tuple[int, Tensor]:
        """A number k and the indices (B,) of a batch of its examples."""
        position = torch.multinomial(self._odds, 1, generator=self._draws)
        k = self.numbers[int(position)]
        return k, self._sources[k][self._batches[k].next()]

    def next_mixed(self) -> tuple[Tensor, Tensor]:
        """A number per example (B,), ascending, and the examples' indices (B,)."""
        drawn_B = torch.multinomial(
            self._odds, self._batch_size, replacement=True, generator=self._draws
        )
        counts = torch.bincount(drawn_B, minlength=len(self.numbers)).tolist()
        numbers, indices = [], []
        for k, count in zip(self.numbers, counts, strict=True):
            source = self._sources[k]
            numbers.append(torch.full((count,), k))
            indices.append(source[torch.randint(len(source), (count,), generator=self._mixing)])
        return torch.cat(numbers), torch.cat(indices)


def alike(stream: ChunkStream) -> Tensor:
    """The indices (B,) of the next batch of one number."""
    return stream.next()[1]


def mixed(stream: ChunkStream) -> Tensor:
    """The indices (B,) of the next batch of several numbers."""
    return stream.next_mixed()[1]


def weight_stream(
    chunks: Chunks, filled: Sequence[int], *, batch_size: int, seed: int
) -> ChunkStream:
    """For weight steps: k by the sizes of chunks, among partitions that own weights; D_1:k."""
    trained = [k for k in filled if chunks.sizes[k - 1]]
    return ChunkStream(
        {k: _tensor(chunks.cumulative(k)) for k in trained},
        {k: chunks.sizes[k - 1] for k in trained},
        batch_size=batch_size,
        seed=seed,
        name="weight steps",
    )


def hyper_stream(chunks: Chunks, *, batch_size: int, seed: int) -> ChunkStream | None:
    """For hyper steps: k in 2..C by the sizes of chunks; D_k alone. None if there is no such."""
    later = [k for k in range(2, len(chunks) + 1) if chunks.sizes[k - 1]]
    if not later:
        return None
    return ChunkStream(
        {k: _tensor(chunks.chunk(k)) for k in later},
        {k: chunks.sizes[k - 1] for k in later},
        batch_size=batch_size,
        seed=seed,
        name="hyper steps",
    )


def _tensor(indices: Any) -> Tensor:
    return torch.from_numpy(indices.copy())
