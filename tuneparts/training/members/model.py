"""What a method with several members trains: one module that predicts for all of them.

Legend: M members, B examples, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


class Members(nn.Module, ABC):
    """Several predictors in one module, whatever they share."""

    @property
    @abstractmethod
    def num_members(self) -> int:
        """M."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Logits (M, B, K) of a batch (B, ...)."""

    @abstractmethod
    def member_flops(self) -> list[int]:
        """Operations of each member for one example.

        A method whose members cannot run alone gives one number, that of all together.
        """

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """A block in which parameters stay as they are: work on them may be done once."""
        yield

    def plain(self, member: int) -> nn.Module | None:
        """A member as an ordinary net with weights of its own; None where there is no such net."""
        del member
        return None


class NetMembers(Members):
    """Members that have a net each, whatever the nets share.

    Args:
        nets: one net per member.
        flops: operations of each net for one example.
    """

    def __init__(self, nets: Sequence[nn.Module], flops: Sequence[int]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self._flops = list(flops)

    @property
    def num_members(self) -> int:
        return len(self.nets)

    def member_flops(self) -> list[int]:
        return list(self._flops)
