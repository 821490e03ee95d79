"""What server and clients send each other in a round, and how many bytes that is.

Bytes are those of the tensors that are sent. Weights and hypers are counted apart: the hypers are
a handful of numbers, and what the partitions save is weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round downloads: all partitions, and the hypers that are learnt."""

    number: int
    """Of the round, from 0."""
    lr: float
    """Local learning rate of the round."""
    weights: Mapping[int, Sequence[Tensor]]
    """By partition, the values (m,) that it owns of each parameter."""
    hypers: Sequence[Tensor]

    def to(self, device: torch.device) -> "Broadcast":
        """The same on another device."""
        weights = {k: _moved(values, device) for k, values in self.weights.items()}
        return replace(self, weights=weights, hypers=_moved(self.hypers, device))


@dataclass(frozen=True)
class Update:
    """What a client of chunk k uploads: partitions k..C, and a gradient of the hypers if k > 1."""

    client: int
    num_examples: int
    weights: Mapping[int, Sequence[Tensor]]
    """By partition, its values (m,) after local training."""
    hyper_grads: Sequence[Tensor]
    """Empty where the client sends none."""
    loss: float | None
    """Mean over its local steps; None when it had none."""
    hyper_loss: float | None

    def to(self, device: torch.device) -> "Update":
        """The same on another device."""
        weights = {k: _moved(values, device) for k, values in self.weights.items()}
        return replace(self, weights=weights, hyper_grads=_moved(self.hyper_grads, device))


@dataclass(frozen=True)
class Dropped:
    """A client that was asked and is left out of the round."""

    client: int
    reason: str


@dataclass(frozen=True)
class Traffic:
    """Bytes sent so far."""

    up: int = 0
    """Weights, from clients to the server."""
    down: int = 0
    """Weights, from the server to clients."""
    hypers: int = 0
    """Hypers down and their gradients up."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.up + self.down + self.hypers

    def after(
        self, broadcast: Broadcast, *, num_asked: int, updates: Sequence[Update]
    ) -> "Traffic":
        """With a round more: every client that was asked downloads, those that answer upload."""
        hypers_up = sum(num_bytes(update.hyper_grads) for update in updates)
        return Traffic(
            up=self.up + sum(weight_bytes(update.weights) for update in updates),
            down=self.down + num_asked * weight_bytes(broadcast.weights),
            hypers=self.hypers + num_asked * num_bytes(broadcast.hypers) + hypers_up,
        )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def weight_bytes(weights: Mapping[int, Sequence[Tensor]]) -> int:
    """Bytes of the partitions that are sent."""
    return sum(num_bytes(values) for values in weights.values())


def _moved(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    return [tensor.to(device) for tensor in tensors]
