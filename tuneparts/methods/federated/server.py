"""One set of weights from those of the clients (McMahan et al. 2017; Reddi et al. 2020).

A partition is moved by the clients that trained it and by nobody else, and has moments and a step
count of its own: in a round in which nobody trained it, it does not move.

Shapes: m entries that a partition owns of one parameter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tuneparts.core.config import Config
from tuneparts.methods.federated.exchange import Update
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.training.state import Stateful


class ServerConfig(Config):
    """What the server does with the mean of the clients' values."""

    kind: Literal["average", "sgd", "adam"] = "adam"
    """Take the mean as it is (McMahan et al. 2017), or step by its difference to the present
    values as by a gradient (Reddi et al. 2020)."""
    lr: float = Field(default=1e-3, gt=0)
    """Not used by `average`."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """`sgd` only."""
    eps: float = Field(default=1e-8, gt=0)
    """`adam` only."""

    def build(self, values: Sequence[nn.Parameter]) -> torch.optim.Optimizer | None:
        """An optimiser of these values; None where their mean is taken."""
        if self.kind == "adam":
            return torch.optim.Adam(values, lr=self.lr, eps=self.eps)
        if self.kind == "sgd":
            return torch.optim.SGD(values, lr=self.lr, momentum=self.momentum)
        return None


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
