"""BatchNorm statistics of the net as it is now.

Moving averages lag behind weights that moved, were noisy, or were used at other widths; plain means
of a few batches under the weights themselves are more to the point.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


@torch.no_grad()
def recalibrate(
    net: nn.Module, batches: Iterable[Tensor], forward: Callable[[Tensor], Tensor]
) -> None:
    """Replace every BatchNorm's running statistics by plain averages over these inputs.

    Everything else of the net runs in eval mode. A net without BatchNorm is left alone.

    Args:
        net: what holds the norms.
        batches: inputs.
        forward: runs the net on a batch, as in training.
    """
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats]
    if not norms:
        return
    modes = {module: module.training for module in net.modules()}
    momenta = [norm.momentum for norm in norms]
    net.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average
        norm.train()
    for x in batches:
        forward(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, is_training in modes.items():
        module.training = is_training
