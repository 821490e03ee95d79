"""What a method with several members trains: one module that predicts for all of them.

Legend: M members, B examples, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tuneparts.models.reweighted import reweighted, standalone
from tuneparts.training.passes import run


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

    def materialised(self) -> "Members":
        """Members that predict the same and compute no weights any more: what is served."""
        return self


class NetMembers(Members):
    """Members that have a net each, and may lend it weights that they share.

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

    @abstractmethod
    def lent(self) -> list[dict[str, Tensor]]:
        """For each member the weights that its net does not own, by name, as part of a graph."""

    def forward(self, x: Tensor) -> Tensor:
        return self.under(self.lent(), x)

    def under(self, lent: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Logits (M, B, K) of the nets with these weights."""
        members = zip(self.nets, lent, strict=True)
        return torch.stack([reweighted(net, own)(x) for net, own in members])

    def backward(
        self,
        batches: Sequence[tuple[Tensor, Tensor]],
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Add the gradients of the sum of all members' losses to the parameters' `grad`.

        Shared weights are computed once, and members follow one another: the activations of one
        member at a time are in memory.

        Args:
            batches: inputs (B, ...) and labels of each member.
            loss: of outputs (B, K) and labels.

        Returns:
            The loss of each member (M,), without a graph.
        """
        lent = self.lent()
        losses, weights, gradients = [], [], []
        for net, own, (x, y_B) in zip(self.nets, lent, batches, strict=True):
            leaves = {name: weight.detach().requires_grad_() for name, weight in own.items()}
            value = loss(run(reweighted(net, leaves), x), y_B)
            value.backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
            for name, leaf in leaves.items():
                if leaf.grad is not None:
                    weights.append(own[name])
                    gradients.append(leaf.grad)
        if weights:
            torch.autograd.backward(weights, gradients)
        return torch.stack(losses)

    def plain(self, member: int) -> nn.Module:
        with torch.no_grad():
            return standalone(self.nets[member], self.lent()[member])

    def materialised(self) -> "PlainMembers":
        with torch.no_grad():
            members = zip(self.nets, self.lent(), strict=True)
            return PlainMembers([standalone(net, own) for net, own in members], self._flops)


class PlainMembers(NetMembers):
    """Nets side by side that share nothing."""

    def lent(self) -> list[dict[str, Tensor]]:
        return [{} for _ in self.nets]

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([net(x) for net in self.nets])

    def plain(self, member: int) -> nn.Module:
        return self.nets[member]

    def materialised(self) -> "PlainMembers":
        return self
