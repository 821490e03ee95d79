"""How a training step calls a net: in the precision of its learner's runtime, compiled or not.

A learner opens a block around each of its steps, and whatever trains inside it calls nets by
`run`. Outside of such a block, and in scores, a net is called as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.training.config import Runtime

Net = Callable[[Tensor], Tensor]


class Forward:
    """How the training steps of one learner call its nets."""

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self.runtime = runtime
        self.device = device
        self.has_run = False
        """Whether a net has been called by `run` in the present interval."""
        self._compiled: dict[int, tuple[Any, Net]] = {}

    @contextmanager
    def training(self) -> Iterator[None]:
        with self.runtime.numerics(self.device, is_training=True), _set(self):
            yield

    def compiled(self, net: Net) -> Net:
        if not isinstance(net, nn.Module):
            raise ConfigError(f"`runtime.compile` is for methods that call one net, not {net!r}.")
        if id(net) not in self._compiled:
            self._compiled[id(net)] = net, torch.compile(net)  # the net itself, to keep its id
        return self._compiled[id(net)][1]


_current: ContextVar[Forward | None] = ContextVar("tuneparts_forward", default=None)


@contextmanager
def _set(forward: Forward | None) -> Iterator[None]:
    token = _current.set(forward)
    try:
        yield
    finally:
        _current.reset(token)


def run(net: Net, x: Tensor, *, exactly: bool = False) -> Tensor:
    """Call a net as the step around it wants; if `exactly`, in float32 and not compiled."""
    ran_elsewhere()
    forward = _current.get()
    if forward is None or exactly:
        return net(x)
    if forward.runtime.compile:
        net = forward.compiled(net)
    if forward.runtime.precision != "bf16":
        return net(x)
    with torch.autocast(forward.device.type, dtype=torch.bfloat16):
        outputs = net(x)
    return outputs.float()


def ran_elsewhere() -> None:
    """Say that nets of the present step were called in another process, or in an earlier trial."""
    forward = _current.get()
    if forward is not None:
        forward.has_run = True


def as_outside() -> AbstractContextManager[None]:
    """A block in which nets are called as they are: for gradients that are differentiated again."""
    return _set(None)
