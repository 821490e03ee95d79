"""An ensemble that predicts within a limit: as many of its members as the limit has room for.

Every subset of members is an operating point with a cost (the anytime inference of Teterwak et al.
2024). Which subset is the best buy is decided on validation data, never on test data.

Legend: M members, B examples, K classes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuneparts.data.given import Arrays, given_inputs
from tuneparts.data.target import Target
from tuneparts.errors import ConfigError
from tuneparts.training.members.predictions import subsets

_TIMED = 20
"""Runs of a member by which its latency is measured."""


@dataclass(frozen=True)
class Buy:
    """A subset of members: what it costs, and its loss on validation data."""

    members: tuple[int, ...]
    flops: int
    """Operations for one example."""
    milliseconds: float
    """Of one example through these members, one after another, as measured."""
    loss: float


class Anytime:
    """Members with the subsets that are worth their cost.

    Args:
        nets: one net per member, in evaluation mode.
        target: what the members predict.
        flops: operations of each member for one example.
        inputs: validation inputs (B, ...), as the nets take them.
        labels: their labels.
    """

    def __init__(
        self,
        nets: Sequence[nn.Module],
        target: Target,
        flops: Sequence[int],
        inputs: Tensor,
        labels: Tensor,
    ) -> None:
        self._nets = tuple(nets)
        self._target = target
        self._device = inputs.device
        milliseconds = [latency(net, inputs[:1]) for net in nets]
        with torch.no_grad():
            outputs_MBK = torch.stack([net(inputs) for net in nets])
        buys = [
            Buy(
                members,
                sum(flops[m] for m in members),
                sum(milliseconds[m] for m in members),
                float(target.loss(target.combined(outputs_MBK[list(members)]), labels)),
            )
            for members in subsets(len(self._nets))
        ]
        self.buys = sorted(buys, key=lambda buy: (buy.flops, buy.members))
        """All subsets, cheapest first."""

    @property
    def frontier(self) -> list[Buy]:
        """The subsets that no cheaper one matches on validation data, cheapest first."""
        found: list[Buy] = []
        for buy in self.buys:
            if not found or buy.loss < found[-1].loss:
                found.append(buy)
        return found

    def best(self, *, flops: float | None = None, milliseconds: float | None = None) -> Buy:
        """The subset with the least validation loss within the limits.

        Raises:
            ConfigError: No member fits.
        """
        fitting = [
            buy
            for buy in self.buys
            if (flops is None or buy.flops <= flops)
            and (milliseconds is None or buy.milliseconds <= milliseconds)
        ]
        if not fitting:
            least = min(self.buys, key=lambda buy: buy.milliseconds)
            raise ConfigError(
                f"the limit must have room for one member, but got flops={flops} and "
                f"milliseconds={milliseconds}; the cheapest takes {self.buys[0].flops} operations, "
                f"the fastest {least.milliseconds:.3g} ms. Raise the limit."
            )
        return min(fitting, key=lambda buy: (buy.loss, buy.flops))

    @torch.no_grad()
    def predict(
        self, inputs: Arrays, *, flops: float | None = None, milliseconds: float | None = None
    ) -> Tensor:
        """What the best subset within the limits predicts: (B, K).

        Args:
            inputs: an array or tensor (B, ...), on any device, scaled as the nets want them.
            flops: most operations for one example.
            milliseconds: most time for one example, by the latencies that were measured.
        """
        chosen = self.best(flops=flops, milliseconds=milliseconds).members
        x = torch.as_tensor(given_inputs(inputs), device=self._device)
        return self._target.combined(torch.stack([self._nets[m](x) for m in chosen]))


@torch.no_grad()
def latency(net: nn.Module, x: Tensor) -> float:
    """Median milliseconds of a pass over a batch, the first passes left out."""
    seconds = []
    for _ in range(_TIMED + 3):
        start = time.perf_counter()
        net(x)
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        seconds.append(time.perf_counter() - start)
    return float(torch.tensor(seconds[3:], dtype=torch.float64).median()) * 1000
