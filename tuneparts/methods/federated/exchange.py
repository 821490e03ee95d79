"""What server and clients send each other in a round, and how many bytes that is.

Bytes are those of the tensors that are sent. Weights and hypers are counted apart: the hypers are
a handful of numbers, and what the partitions save is weights.

The server makes one set of weights from those of the clients (McMahan et al. 2017; Reddi et al.
2020). A partition is moved by the clients that trained it and by nobody else, and has moments and a
step count of its own: in a round in which nobody trained it, it does not move.

Shapes: m entries that a partition owns of one parameter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.methods.federated.config import ServerConfig
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.training.state import Stateful


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


class Server(Stateful, parts=("_optimisers",), values=("num_steps",)):
    """Moves the partitions of a net by what clients send.

    Args:
        parts: whose values are moved.
        config: how.
    """

    def __init__(self, parts: Partitioned, config: ServerConfig) -> None:
        self._parts = parts
        self._values: dict[int, list[nn.Parameter]] = {
            k: [nn.Parameter(share.gather(share.flat_n).clone()) for share in parts.shares(k)]
            for k in parts.filled
        }
        self._optimisers = {k: config.build(values) for k, values in self._values.items()}
        self.num_steps = dict.fromkeys(self._values, 0)
        """Rounds in which each partition moved."""

    def weights(self) -> dict[int, list[Tensor]]:
        """What clients download: the present values by partition, in memory of their own."""
        return {k: [v.detach().clone() for v in values] for k, values in self._values.items()}

    @torch.no_grad()
    def step(self, updates: Sequence[Update]) -> None:
        """Move every partition that someone trained, by those who did."""
        for k, values in self._values.items():
            senders = [update for update in updates if k in update.weights]
            if not senders:
                continue
            means = mean_over([(update, update.weights[k]) for update in senders])
            self._move(self._optimisers[k], values, means)
            self.num_steps[k] += 1
            for share, value in zip(self._parts.shares(k), values, strict=True):
                share.scatter(value.detach())

    def _move(
        self,
        optimiser: torch.optim.Optimizer | None,
        values: Sequence[nn.Parameter],
        means: Sequence[Tensor],
    ) -> None:
        for value, mean in zip(values, means, strict=True):
            if optimiser is None:
                value.copy_(mean)
            else:
                value.grad = value - mean
        if optimiser is not None:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, once the partitions have their values back."""
        super().restore(state)
        with torch.no_grad():
            for k, values in self._values.items():
                for share, value in zip(self._parts.shares(k), values, strict=True):
                    value.copy_(share.gather(share.flat_n))


def mean_over(sent: Sequence[tuple[Update, Sequence[Tensor]]]) -> list[Tensor]:
    """Mean of what clients sent, weighted by their examples, in the order of the clients.

    Args:
        sent: at least one client's update, and the part of it to average; in the same shapes.
    """
    total = sum(update.num_examples for update, _ in sent)
    means: list[Tensor] = []
    for update, tensors in sorted(sent, key=lambda pair: pair[0].client):
        share = update.num_examples / total  # exactly 1 for a single client, whose bits stay
        scaled = [share * tensor for tensor in tensors]
        means = [a + b for a, b in zip(means, scaled, strict=True)] if means else scaled
    return means
