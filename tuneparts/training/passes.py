"""How a training step calls a net: under the runtime of its learner, and with its share of rows.

A learner opens a block around each of its steps, and whatever trains inside it calls nets by
`run`. Outside of such a block, and in scores, a net is called as it is.

Shapes: N rows of a batch, augmentation samples included.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from tuneparts.augment.dropout_slot import DropoutSlot
from tuneparts.errors import ConfigError
from tuneparts.training.ranks import Ranks, dividing
from tuneparts.training.runtime import Runtime

Net = Callable[[Tensor], Tensor]


@runtime_checkable
class ByRows(Protocol):
    """A net that computes different rows of a batch differently."""

    def of_rows(self, rows: slice) -> Net:
        """The net of these rows alone."""
        ...


class Passes:
    """The training passes of one learner.

    Args:
        runtime: how they compute.
        device: where.
        ranks: whom a batch is shared with; None for nobody.
    """

    def __init__(self, runtime: Runtime, device: torch.device, ranks: Ranks | None = None) -> None:
        self.runtime = runtime
        self.device = device
        self.ranks = ranks
        self._compiled: dict[int, tuple[Any, Net]] = {}

    @contextmanager
    def training(self) -> "Iterator[Block]":
        """A block in which `run` calls nets in this way."""
        block = Block(self)
        token = _current.set(block)
        try:
            with self.runtime.numerics(self.device, is_training=True):
                yield block
        finally:
            _current.reset(token)

    def refuse_unused(self) -> None:
        """Refuse a learner that has trained without asking how, where that makes a difference."""
        plain = Runtime(deterministic=self.runtime.deterministic)
        if self.ranks is not None or self.runtime != plain:
            raise ConfigError(
                f"a method takes part in its `runtime` by calling nets through `loss_on` or "
                f"`tuneparts.training.passes.run`, but this one never has, and {self.runtime!r} "
                "had no effect. Leave `runtime` out, or change the method."
            )

    def check(self, modules: Iterable[nn.Module], *, draws: bool) -> None:
        """Refuse a learner whose batches cannot be cut into pieces, where they would be.

        Args:
            modules: its nets.
            draws: whether something is drawn inside of them, other than by dropout layers.

        Raises:
            ConfigError: With the layer, and the cure.
        """
        is_cut = self.runtime.checkpoint_segments > 1
        if not is_cut and self.ranks is None:
            return
        why = "activations are computed again" if is_cut else "several GPUs share a batch"
        for name, module in _named_modules(modules):
            if isinstance(module, _NormBase) and is_cut:
                raise ConfigError(
                    "pieces of a batch are computed one by one, so that a norm over the batch "
                    f"would see a piece, but `{name}` is a {type(module).__name__}. Use a net with "
                    "GroupNorm or without norms, or `checkpoint_segments=1`."
                )
            draws |= isinstance(module, _DropoutNd) and _draws(module)
        if draws:
            raise ConfigError(
                f"what is drawn inside a net is drawn for a whole batch at once, but {why}, and "
                "dropout or other hypers act on activations. Leave them out, or use one GPU and "
                "`checkpoint_segments=1`."
            )

    def call(self, net: Net, x: Tensor, *, dim: int, exactly: bool) -> Tensor:
        """The outputs of all rows of `x`; see `run`."""
        num = len(x)
        if self.ranks is None:
            return self._pieces(net, x, slice(0, num), dim=dim, exactly=exactly)
        if num < self.ranks.size:
            raise ConfigError(
                f"every GPU has a row of each batch, but {self.ranks.size} of them share {num}. "
                "Raise `batch_size`, or lower `resources.gpus`."
            )
        with dividing():
            own = self._pieces(net, x, self.ranks.rows(num), dim=dim, exactly=exactly)
        return self.ranks.gathered(own, num, dim=dim)

    def _pieces(self, net: Net, x: Tensor, rows: slice, *, dim: int, exactly: bool) -> Tensor:
        """The outputs of these rows, in one call or in several that are computed again."""
        num = rows.stop - rows.start
        segments = min(self.runtime.checkpoint_segments, num)
        bounds = [rows.start + num * piece // segments for piece in range(segments + 1)]
        outputs = []
        for piece in map(slice, bounds, bounds[1:]):
            is_whole = piece == slice(0, len(x))
            part = net.of_rows(piece) if isinstance(net, ByRows) and not is_whole else net
            function = partial(self._computed, part, exactly=exactly)
            if segments == 1:
                return function(x if is_whole else x[piece])
            # Nothing in it draws, see `check`.
            outputs.append(
                checkpoint(function, x[piece], use_reentrant=False, preserve_rng_state=False)
            )
        return torch.cat(outputs, dim=dim)

    def _computed(self, net: Net, x: Tensor, *, exactly: bool) -> Tensor:
        if self.runtime.compile and not exactly:
            net = self._compile(net)
        if self.runtime.precision != "bf16" or exactly:
            return net(x)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            outputs = net(x)
        return outputs.float()

    def _compile(self, net: Net) -> Net:
        if not isinstance(net, nn.Module):
            raise ConfigError(
                "`runtime.compile` is for methods that train one net as it is, but this one calls "
                f"{net!r}. Leave it out."
            )
        if id(net) not in self._compiled:
            self._compiled[id(net)] = net, torch.compile(net)  # the net itself, to keep its id
        return self._compiled[id(net)][1]


@dataclass
class Block:
    """A step under way."""

    passes: Passes
    has_run: bool = False
    """Whether a net has been called by `run`."""


_current: ContextVar[Block | None] = ContextVar("tuneparts_passes", default=None)


def run(net: Net, x: Tensor, *, dim: int = 0, exactly: bool = False) -> Tensor:
    """Call a net as the training step around this call wants it.

    Args:
        net: from inputs (N, ...) to outputs.
        x: the whole batch.
        dim: of the outputs, that the rows of `x` become.
        exactly: in float32 and not compiled, as hyper steps are.

    Example:
        >>> run(nn.Identity(), torch.ones(2)).tolist()
        [1.0, 1.0]
    """
    block = _current.get()
    if block is None:
        return net(x)
    block.has_run = True
    return block.passes.call(net, x, dim=dim, exactly=exactly)


def average(gradients: Iterable[Tensor | None]) -> None:
    """Take the mean over ranks of gradients, in place, where a batch is shared."""
    block = _current.get()
    if block is not None and block.passes.ranks is not None:
        block.passes.ranks.average(gradients)


def ran_elsewhere() -> None:
    """Say that nets of the present step were called in another process, or in an earlier trial."""
    block = _current.get()
    if block is not None:
        block.has_run = True


@contextmanager
def undivided() -> Iterator[None]:
    """A block in which nets are called as they are: for gradients that are differentiated again."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def _named_modules(modules: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for module in modules:
        yield from module.named_modules()


def _draws(dropout: _DropoutNd) -> bool:
    return dropout.p > 0 and not isinstance(dropout, DropoutSlot)
