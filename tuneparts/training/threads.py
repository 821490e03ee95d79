"""How many threads a net trains on where no search has given it a share of the machine.

Threads wait for each other in every layer. A second one gains up to a fourth where a pass is small,
and 1.2 to 1.9 times where it is large; but on a machine that does other things too, small passes
took six to thirteen times as long on two threads as on one (docs/log.md). The rule looks at sizes
and not at the clock, so that numbers stay the same: threads add in another order.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from tuneparts.models.sizes import count_flops

SMALL = 1_000_000_000
"""Operations of a forward pass over one batch below which one thread trains a net."""


@contextmanager
def threads_for(
    nets: Sequence[nn.Module], in_shape: tuple[int, ...], num_examples: int, device: torch.device
) -> Iterator[None]:
    """Train on one thread where passes over these nets are small; nothing changes off the CPU.

    `num_examples` are those of a pass, every augmentation sample counted.
    """
    before = torch.get_num_threads()
    if before > 1 and device.type == "cpu":
        each = [_operations(net, in_shape) for net in nets]
        if all(each) and sum(each) * num_examples < SMALL:
            torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _operations(net: nn.Module, in_shape: tuple[int, ...]) -> int:
    """Of one example; 0 where the net runs only with real numbers in it."""
    for is_whole in (False, True):
        try:
            return count_flops(net, in_shape, is_whole=is_whole)
        except Exception:
            continue
    return 0
