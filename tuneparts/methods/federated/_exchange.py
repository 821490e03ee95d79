"""What server and clients send each other in a round, and how many bytes that is.

Bytes are those of the tensors that are sent. Weights and hyperparameters are counted apart: the
hyperparameters are a handful of numbers, and what the partitions save is weights.

The server makes one set of weights from those of the clients (McMahan et al. 2017; Reddi et al.
2020). A partition is moved by the clients that trained it and by nobody else, and has moments and a
step count of its own: in a round in which nobody trained it, it does not move.

Shapes: m entries that a partition owns of one parameter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tuneparts.methods.federated.config import ServerConfig
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.training.state import Stateful, copied


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round downloads: all partitions, learnt hyperparameters."""

    number: int
    lr: float
    """Local learning rate of the round."""
    weights: Mapping[int, Sequence[Tensor]]
    """By partition, the values (m,) that it owns of each parameter."""
    hypers: Sequence[Tensor]


@dataclass(frozen=True)
class Update:
    """What a client of chunk k uploads: partitions k..C, and if k > 1 a gradient of psi."""

    client: int
    num_examples: int
    weights: Mapping[int, Sequence[Tensor]]
    """By partition, its values (m,) after local training."""
    hyper_grads: Sequence[Tensor]
    """Empty where the client sends none."""
    loss: float | None
    """Mean over its local steps; None when it had none."""
    hyper_loss: float | None


@dataclass(frozen=True)
class Dropped:
    """A client that was asked and is left out of the round."""

    client: int
    reason: str

    @staticmethod
    def by(error: BaseException, client: int) -> "Dropped":
        return Dropped(client, f"{type(error).__name__}: {error}")


Answer = Update | Dropped
Message = TypeVar("Message", bound=Broadcast | Update | Dropped)


def moved(message: Message, device: torch.device) -> Message:
    values = {one.name: getattr(message, one.name) for one in fields(message)}
    return replace(message, **copied(values, lambda tensor: tensor.to(device)))


@dataclass(frozen=True)
class Traffic:
    up: int = 0
    """Weights, from clients to the server."""
    down: int = 0
    """Weights, from the server to clients."""
    hypers: int = 0
    """Hyperparameters down and their gradients up."""

    @property
    def total(self) -> int:
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
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def weight_bytes(weights: Mapping[int, Sequence[Tensor]]) -> int:
    return sum(num_bytes(values) for values in weights.values())


class Server(Stateful, parts=("_optimisers",), values=("num_steps",)):
    """Moves the partitions of a net by what clients send."""

    def __init__(self, parts: PartitionedNet, config: ServerConfig) -> None:
        self._parts = parts
        self._values: dict[int, list[nn.Parameter]] = {
            k: [nn.Parameter(share.gather(share.flat_n).clone()) for share in parts.shares(k)]
            for k in parts.filled
        }
        self._optimisers = {k: config.build(values) for k, values in self._values.items()}
        self.num_steps = dict.fromkeys(self._values, 0)

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
            optimiser = self._optimisers[k]
            means = mean_over([(update, update.weights[k]) for update in senders])
            for value, mean in zip(values, means, strict=True):
                if optimiser is None:
                    value.copy_(mean)
                else:
                    value.grad = value - mean
            if optimiser is not None:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            self.num_steps[k] += 1
            for share, value in zip(self._parts.shares(k), values, strict=True):
                share.scatter(value.detach())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, once the partitions have their values back."""
        super().restore(state)
        with torch.no_grad():
            for k, values in self._values.items():
                for share, value in zip(self._parts.shares(k), values, strict=True):
                    value.copy_(share.gather(share.flat_n))


def mean_over(sent: Sequence[tuple[Update, Sequence[Tensor]]]) -> list[Tensor]:
    """Mean of these parts of updates, at least one, weighted by examples, in the clients' order."""
    total = sum(update.num_examples for update, _ in sent)
    means: list[Tensor] = []
    for update, tensors in sorted(sent, key=lambda pair: pair[0].client):
        share = update.num_examples / total  # exactly 1 for a single client, whose bits stay
        scaled = [share * tensor for tensor in tensors]
        means = [a + b for a, b in zip(means, scaled, strict=True)] if means else scaled
    return means
