"""Nets that compose their weights from one bank of templates.

Legend: M members, B batch, K classes.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.superweights.bank import TemplateBank
from tuneparts.training.members.lending import give_up_weights, lent
from tuneparts.training.members.model import Members


class SuperweightMembers(Members):
    """Members with private norms, biases and heads, and shared everything else.

    Args:
        nets: ordinary nets; they give up the weights that the bank composes.
        bank: over exactly the layers of these nets.
        flops: of each net for one example. Composing is not counted: for inference it is done
            once, whatever the number of examples.
    """

    def __init__(self, nets: Sequence[nn.Module], bank: TemplateBank, flops: Sequence[int]) -> None:
        super().__init__()
        self._names: list[list[str]] = [[] for _ in nets]
        for layer in bank.plan.layers:
            self._names[layer.member].append(layer.name)
        for net, names in zip(nets, self._names, strict=True):
            give_up_weights(net, names)
        self.nets = nn.ModuleList(nets)
        self.bank = bank
        self._flops = list(flops)
        self._is_prepared = False

    @property
    def num_members(self) -> int:
        return len(self.nets)

    def member_flops(self) -> list[int]:
        return list(self._flops)

    def forward(self, x: Tensor) -> Tensor:
        if self._is_prepared:
            return self._run(x)
        with self._lent(self.bank.compose()):
            return self._run(x)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with torch.no_grad():
            weights = self.bank.compose()
        with self._lent(weights):
            self._is_prepared = True
            try:
                yield
            finally:
                self._is_prepared = False

    def layer_gradients(self, x: Tensor, y_B: Tensor, *, norms: str) -> tuple[Tensor, list[Tensor]]:
        """Mean loss, and its gradient for the weight of every layer, each for its own use alone.

        Nothing changes: no parameter, no `.grad`, no running statistics.

        Args:
            x: inputs (B, ...).
            y_B: labels.
            norms: whether norms use their running statistics (`eval`) or the batch (`train`).

        Returns:
            The mean over members, and gradients of the sum over members in the plan's order.
        """
        with torch.no_grad():
            weights = [w.detach().clone().requires_grad_() for w in self.bank.compose()]
        with self._norms(is_training=norms == "train"), self._lent(weights):
            losses = [F.cross_entropy(logits_BK, y_B) for logits_BK in self._run(x)]
            total = torch.stack(losses).sum()
            # Before the statistics are put back: the graph of a norm refers to them.
            gradients = list(torch.autograd.grad(total, weights))
        return total.detach() / len(losses), gradients

    def plain(self, member: int) -> nn.Module:
        with torch.no_grad():
            weights = self.bank.compose()
        net = deepcopy(self.nets[member])
        layers = zip(self.bank.plan.layers, weights, strict=True)
        for layer, weight in layers:
            if layer.member == member:
                module = net.get_submodule(layer.name)
                module.__dict__.pop("weight", None)
                module.register_parameter("weight", nn.Parameter(weight.clone()))
        return net

    def _run(self, x: Tensor) -> Tensor:
        return torch.stack([net(x) for net in self.nets])

    @contextmanager
    def _lent(self, weights: Sequence[Tensor]) -> Iterator[None]:
        shares: list[dict[str, Tensor]] = [{} for _ in self.nets]
        for layer, weight in zip(self.bank.plan.layers, weights, strict=True):
            shares[layer.member][layer.name] = weight
        with ExitStack() as stack:
            for net, share in zip(self.nets, shares, strict=True):
                stack.enter_context(lent(net, share))
            yield

    @contextmanager
    def _norms(self, *, is_training: bool) -> Iterator[None]:
        """Train or eval mode inside the block, with all buffers as they were afterwards."""
        was_training = self.training
        kept = [(buffer, buffer.clone()) for buffer in self.buffers()] if is_training else []
        self.train(is_training)
        try:
            yield
        finally:
            self.train(was_training)
            for buffer, value in kept:
                buffer.copy_(value)
