"""How a training step calls a net: in the precision of its learner's runtime, compiled or not.

A learner opens a block around each of its steps, and whatever trains inside it calls nets by
`run`. Outside of such a block, and in scores, a net is called as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.training.config import Runtime

Net = Callable[[Tensor], Tensor]


class Passes:
    """The training passes of one learner."""

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.runtime = runtime
        self.device = device
        self._compiled: dict[int, tuple[Any, Net]] = {}

    @contextmanager
    def training(self) -> "Iterator[_Block]":
        """A block in which `run` calls nets in this way."""
        block = _Block(self)
        token = _current.set(block)
        try:
            with self.runtime.numerics(self.device, is_training=True):
                yield block
        finally:
            _current.reset(token)

    def refuse_unused(self) -> None:
        """Refuse a learner that has trained without `run`, where that makes a difference."""
        if self.runtime != Runtime(deterministic=self.runtime.deterministic):
            raise ConfigError(
                f"a method takes part in its `runtime` by calling nets through `loss_on` or "
                f"`tuneparts.training.passes.run`, but this one never has, and {self.runtime!r} "
                "had no effect. Leave `runtime` out, or change the method."
            )

    def call(self, net: Net, x: Tensor, *, exactly: bool) -> Tensor:
        """The outputs of a net; see `run`."""
        if exactly:
            return net(x)
        if self.runtime.compile:
            net = self._compile(net)
        if self.runtime.precision != "bf16":
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
class _Block:
    """A step under way."""

    passes: Passes
    has_run: bool = False
    """Whether a net has been called by `run`."""


_current: ContextVar[_Block | None] = ContextVar("tuneparts_passes", default=None)


def run(net: Net, x: Tensor, *, exactly: bool = False) -> Tensor:
    """Call a net as the training step around this call wants it.

    Args:
        net: from inputs to outputs.
        x: a batch.
        exactly: in float32 and not compiled, as hyper steps are.

    Example:
        >>> run(nn.Identity(), torch.ones(2)).tolist()
        [1.0, 1.0]
    """
    block = _current.get()
    if block is None:
        return net(x)
    block.has_run = True
    return block.passes.call(net, x, exactly=exactly)


def ran_elsewhere() -> None:
    """Say that nets of the present step were called in another process, or in an earlier trial."""
    block = _current.get()
    if block is not None:
        block.has_run = True


@contextmanager
def as_outside() -> Iterator[None]:
    """A block in which nets are called as they are: for gradients that are differentiated again."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)
