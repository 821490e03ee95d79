"""One trial in several processes: each computes its share of the rows of every batch.

Every rank holds the whole learner and draws all random numbers of the whole batch. It calls the net
with its own rows only; outputs are gathered, so that every rank sees the outputs and the loss of
the whole batch. The gradient that flows back into a rank's rows is multiplied by the number of
ranks. The mean of gradients over ranks is then the gradient of the whole batch, both of what comes
before the gathering (weights, augmentation) and of what comes after it (temperature, penalties).
All ranks take the same steps, so that any of them has the state of the run.

Shapes: N rows, B examples of a batch, C channels.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuneparts.errors import ConfigError, DivergedError

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Ranks:
    """This process among those of a trial; `torch.distributed` has been started."""

    rank: int
    size: int

    def rows(self, num: int) -> slice:
        """This rank's rows among N: as equal shares as there can be.

        Example:
            >>> [Ranks(rank, 3).rows(8) for rank in range(3)]
            [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(num * self.rank // self.size, num * (self.rank + 1) // self.size)

    def gathered(self, own: Tensor, num: int, *, dim: int) -> Tensor:
        """The outputs of all N rows, from those of this rank's."""
        gathered: Tensor = _Gathered.apply(own, self, num, dim)  # type: ignore[no-untyped-call]
        return gathered

    @torch.no_grad()
    def average(self, tensors: Iterable[Tensor | None]) -> None:
        """Replace gradients by their mean over ranks, in place; None stays."""
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            if tensor is not None:
                kinds.setdefault(tensor.dtype, []).append(tensor)
        for alike in kinds.values():
            # One message for all of a kind.
            flat_n = torch.cat([tensor.reshape(-1) for tensor in alike])
            dist.all_reduce(flat_n)
            flat_n /= self.size
            means = torch.split(flat_n, [tensor.numel() for tensor in alike])
            for tensor, mean_n in zip(alike, means, strict=True):
                tensor.copy_(mean_n.view(tensor.shape))

    def check_same(self, values: Iterable[float], *, device: torch.device) -> None:
        """Refuse to go on with ranks that have drifted apart.

        Args:
            values: what each rank reports.
            device: of this rank.
        """
        own = torch.tensor(list(values), dtype=torch.float64, device=device).nan_to_num()
        most, least = own.clone(), own.clone()
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        if not torch.equal(most, least):
            raise DivergedError(
                f"all {self.size} ranks of a trial take the same steps, but they report values "
                f"that differ by up to {float((most - least).max()):.3g}. A kernel is not "
                "repeatable: set `runtime.deterministic`, or use one GPU."
            )


class _Gathered(torch.autograd.Function):
    """Outputs of all rows; the gradient goes back to a rank's own, times the number of ranks."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks, num: int, dim: int) -> Tensor:
        ctx.ranks, ctx.num, ctx.dim = ranks, num, dim
        shape = list(own.shape)
        shape[dim] = num
        # Zeros elsewhere and a sum, because shares need not be of one size.
        whole = own.new_zeros(shape)
        rows = ranks.rows(num)
        whole.narrow(dim, rows.start, rows.stop - rows.start).copy_(own)
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows = ctx.ranks.rows(ctx.num)
        own = grad.narrow(ctx.dim, rows.start, rows.stop - rows.start)
        return own * ctx.ranks.size, None, None, None


_divided: ContextVar[bool] = ContextVar("tuneparts_divided", default=False)


@contextmanager
def dividing() -> Iterator[None]:
    """Inside the block norms over the batch take the rows of all ranks together."""
    token = _divided.set(True)
    try:
        yield
    finally:
        _divided.reset(token)


def synchronised(net: M) -> M:
    """Let the batch norms of a net, in place, see the rows of all ranks inside `dividing`."""
    for module in net.modules():
        if isinstance(module, _BatchNorm):
            kind = _SYNCED.get(type(module))
            if kind is None and not isinstance(module, _SyncedNorm):
                raise ConfigError(
                    "ranks share the statistics of torch's batch norms, but the net has a "
                    f"{type(module).__name__}. Use one GPU for each trial."
                )
            if kind is not None:
                module.__class__ = kind
    return net


class _SyncedNorm(_BatchNorm):
    """A batch norm over the rows of all ranks."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (N, C, ...)."""
        is_by_batch = self.training or self.running_mean is None
        if not (is_by_batch and _divided.get()):
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        others = [d for d in range(x.dim()) if d != 1]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        count = torch.full((1,), x.numel() / x.shape[1], dtype=x.dtype, device=x.device)
        sums = _summed(torch.cat([x.sum(others), count]))
        number = sums[-1:].detach()
        mean_C = sums[:-1] / number
        centred = x - mean_C.view(shape)
        var_C = _summed(centred.square().sum(others)) / number
        self._track(mean_C.detach(), (var_C * number / (number - 1)).detach())
        y: Tensor = centred * (var_C + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            y = y * self.weight.view(shape)
        if self.bias is not None:
            y = y + self.bias.view(shape)
        return y.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean_C: Tensor, var_C: Tensor) -> None:
        if not self.training or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean_C.to(self.running_mean.dtype), share)
        self.running_var.lerp_(var_C.to(self.running_var.dtype), share)


class SyncedNorm1d(_SyncedNorm, nn.BatchNorm1d):
    """`nn.BatchNorm1d` over all ranks."""


class SyncedNorm2d(_SyncedNorm, nn.BatchNorm2d):
    """`nn.BatchNorm2d` over all ranks."""


class SyncedNorm3d(_SyncedNorm, nn.BatchNorm3d):
    """`nn.BatchNorm3d` over all ranks."""


_SYNCED: dict[type, type] = {
    nn.BatchNorm1d: SyncedNorm1d,
    nn.BatchNorm2d: SyncedNorm2d,
    nn.BatchNorm3d: SyncedNorm3d,
}


def _summed(own: Tensor) -> Tensor:
    total: Tensor = _Summed.apply(own)  # type: ignore[no-untyped-call]
    return total


class _Summed(torch.autograd.Function):
    """The sum over ranks; its gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:  # noqa: ARG004
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        total = grad.contiguous().clone()
        dist.all_reduce(total)
        return total
