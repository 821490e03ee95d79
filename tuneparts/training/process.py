"""How a process trains quickly: memory that it keeps, and how many threads it uses.

glibc gives large blocks back to the kernel as soon as they are free, and the next step takes a page
fault for each 4 KiB of its activations: half the time of a step of a small ResNet. Threads wait for
each other in every layer, so that small steps are quicker on one (docs/log.md). The rule looks at
sizes and not at the clock, so that numbers stay the same: threads add in another order.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a worker of plain functions needs no torch
    import torch
    from torch import nn

_M_TRIM_THRESHOLD, _NEVER_TRIM = -1, 2**31 - 1
# Larger blocks, in bytes, go back to the kernel, so that a rare giant does not stay.
_M_MMAP_THRESHOLD, _LARGEST_KEPT = -3, 2**30
SMALL = 1_000_000_000
"""Operations of a forward pass over one batch below which one thread trains a net."""


def keep_freed_memory() -> bool:
    """Make this process keep what it frees; True if its C library can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # macOS, musl, Windows: other allocators
        return False
    options = ((_M_TRIM_THRESHOLD, _NEVER_TRIM), (_M_MMAP_THRESHOLD, _LARGEST_KEPT))
    return [mallopt(*option) for option in options] == [1, 1]


@contextmanager
def threads_for(
    nets: "Sequence[nn.Module]",
    in_shape: tuple[int, ...],
    num_examples: int,
    device: "torch.device",
) -> Iterator[None]:
    """Train on one thread of the CPU where steps over these nets, with all samples, are small."""
    import torch

    before = torch.get_num_threads()
    if before > 1 and device.type == "cpu":
        each = [_operations(net, in_shape) for net in nets]
        if all(each) and sum(each) * num_examples < SMALL:
            torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _operations(net: "nn.Module", in_shape: tuple[int, ...]) -> int:
    """Of one example; 0 where the net runs only with real numbers in it."""
    from tuneparts.nets.sizes import count_flops

    for is_whole in (False, True):
        try:
            return count_flops(net, in_shape, is_whole=is_whole)
        except Exception:
            continue
    return 0
