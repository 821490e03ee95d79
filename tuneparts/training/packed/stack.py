"""The weights of several nets of one architecture in shared tensors with a lane dimension.

Legend: P lanes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Stack:
    """Parameters and buffers of P nets as tensors (P, ...).

    Each net keeps its parameters and buffers, which become views: whatever a net computes with,
    saves or loads is its lane.

    Args:
        nets: of one architecture.

    Example:
        >>> nets = [nn.Linear(2, 1), nn.Linear(2, 1)]
        >>> stack = Stack(nets)
        >>> with torch.no_grad():
        ...     _ = stack.of(nets[0].bias).fill_(3.0)
        >>> nets[1].bias.item()
        3.0
    """

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        self.lanes = len(nets)
        self.parameters: list[Tensor] = []
        """In the order of the nets' parameters; those that nets can learn are leaves."""
        self.buffers: list[Tensor] = []
        self._by_id: dict[int, Tensor] = {}
        for each in zip(*(net.parameters() for net in nets), strict=True):
            self.parameters.append(self._joined(each))
            self.parameters[-1].requires_grad_(each[0].requires_grad)
        for each in zip(*(net.buffers() for net in nets), strict=True):
            self.buffers.append(self._joined(each))

    def _joined(self, each: Sequence[Tensor]) -> Tensor:
        joined = torch.stack([tensor.detach() for tensor in each])
        for lane, tensor in enumerate(each):
            tensor.data = joined[lane]
        self._by_id[id(each[0])] = joined
        return joined

    def of(self, tensor: Tensor) -> Tensor:
        """The tensor (P, ...) of all lanes, given that of the first net."""
        return self._by_id[id(tensor)]
