"""What a net must not do in a forward pass, because it would carry data past the partitions.

The hypers are judged by chunks that a subnetwork never saw. A net that remembers a batch in a
buffer of its own hands that chunk to every subnetwork, and the judgement means nothing.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tuneparts import seeding
from tuneparts.errors import ConfigError


def check_isolation(net: nn.Module, x: Tensor) -> None:
    """Refuse a net that changes buffers of its own when it is called.

    Running statistics of norms are kept apart for each subnetwork, and may change.

    Args:
        net: it is not changed.
        x: a few inputs.
    """
    own = {
        f"{name}.{key}" if name else key
        for name, module in net.named_modules()
        if not isinstance(module, _NormBase)
        for key, _ in module.named_buffers(recurse=False)
    }
    if not own:
        return
    called = copy.deepcopy(net)
    before = {name: copy.deepcopy(tensor) for name, tensor in called.named_buffers()}
    with seeding.isolated(0, "probe"), torch.no_grad():
        called.train()(x)
    changed = [
        name
        for name, tensor in called.named_buffers()
        if name in own and not torch.equal(tensor, before[name])
    ]
    if changed:
        raise ConfigError(
            "a chunk that judges a subnetwork must leave no trace in it, but a forward pass "
            f"changes the buffer `{changed[0]}`, which all subnetworks read. Keep statistics in "
            "torch's own norms, or take the update out of the forward pass."
        )
