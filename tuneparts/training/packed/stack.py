"""The weights of several nets of one architecture in shared tensors with a lane dimension.

Legend: P lanes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Forward = Callable[[Tensor], Tensor]


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
        self._lent: Mapping[int, Tensor] = {}
        self._instead: Mapping[int, Forward] = {}
        for each in zip(*(net.parameters() for net in nets), strict=True):
            self.parameters.append(self._joined(each))
            self.parameters[-1].requires_grad_(each[0].requires_grad)
        for each in zip(*(net.buffers() for net in nets), strict=True):
            self.buffers.append(self._joined(each))

    def _joined(self, each: Sequence[Tensor]) -> Tensor:
        joined = torch.stack([tensor.detach() for tensor in each])
        for lane, tensor in enumerate(each):
            tensor.data = joined[lane]
            self._by_id[id(tensor)] = joined
        return joined

    def of(self, tensor: Tensor) -> Tensor:
        """The tensor (P, ...) of all lanes, given that of any net."""
        return self._by_id[id(tensor)]

    def used(self, tensor: Tensor) -> Tensor:
        """What a pass computes with: the tensor of all lanes, or what is lent in its place."""
        found = self._lent.get(id(tensor))
        return self._by_id[id(tensor)] if found is None else found

    def instead_of(self, layer: nn.Module) -> Forward | None:
        """What a pass does in place of a layer's lane form; None for nothing."""
        return self._instead.get(id(layer))

    @contextmanager
    def lending(
        self, tensors: Mapping[int, Tensor], instead: Mapping[int, Forward]
    ) -> Iterator[None]:
        """A block in which passes use other tensors (P, ...) and other forwards.

        Args:
            tensors: by id of the first net's.
            instead: from activations to activations, by id of the first net's layer.
        """
        self._lent, self._instead = tensors, instead
        try:
            yield
        finally:
            self._lent, self._instead = {}, {}
