"""Nets that compose their weights from one bank.

Legend: M members, B batch, K classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tuneparts.methods.superweights.bank import TemplateBank, WeightBank
from tuneparts.models.reweighted import give_up
from tuneparts.training.members import NetMembers


class BankMembers(NetMembers):
    """Members with private norms, biases and heads, and shared everything else.

    Args:
        nets: ordinary nets; they give up the weights that the bank composes.
        bank: over exactly the layers of these nets.
        flops: operations of each net for one example. Composing is not counted: for inference it
            is done once, whatever the number of examples.
    """

    def __init__(self, nets: Sequence[nn.Module], bank: WeightBank, flops: Sequence[int]) -> None:
        super().__init__(nets, flops)
        for layer in bank.layers:
            give_up(nets[layer.member], [f"{layer.name}.weight"])
        self.bank = bank
        self._prepared: Sequence[Tensor] | None = None

    def lent(self) -> list[dict[str, Tensor]]:
        weights = self._prepared
        return self.by_member(self.bank.compose() if weights is None else weights)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with torch.no_grad():
            self._prepared = self.bank.compose()
        try:
            yield
        finally:
            self._prepared = None

    def by_member(self, weights: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        """Name the weights of all layers by parameter, for each member."""
        own: list[dict[str, Tensor]] = [{} for _ in self.nets]
        for layer, weight in zip(self.bank.layers, weights, strict=True):
            own[layer.member][f"{layer.name}.weight"] = weight
        return own


class SuperweightMembers(BankMembers):
    """Members that share templates, with the gradients by which sharing is decided."""

    bank: TemplateBank

    def layer_gradients(
        self, x: Tensor, y_B: Tensor, *, loss: Callable[[Tensor, Tensor], Tensor], norms: str
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute the mean loss, and its gradient for the weight that each layer alone uses.

        Nothing changes: no parameter, no `.grad`, no running statistics.

        Args:
            x: inputs (B, ...).
            y_B: labels.
            loss: mean loss of outputs (B, K) and labels.
            norms: whether norms use their running statistics (`eval`) or the batch (`train`).

        Returns:
            The mean over members, and gradients of the sum over members in the plan's order; zero
            for a layer that the pass did not call.
        """
        with torch.no_grad():
            weights = [w.detach().clone().requires_grad_() for w in self.bank.compose()]
        with self._norms(is_training=norms == "train"):
            logits_MBK = self.under(self.by_member(weights), x)
            losses = [loss(logits_BK, y_B) for logits_BK in logits_MBK]
            total = torch.stack(losses).sum()
            # Before the statistics are put back: the graph of a norm refers to them.
            found = torch.autograd.grad(total, weights, allow_unused=True)
        # A layer may be skipped in a pass, as by stochastic depth, or in one of the modes.
        gradients = [
            torch.zeros_like(weight) if gradient is None else gradient
            for weight, gradient in zip(weights, found, strict=True)
        ]
        return total.detach() / len(losses), gradients

    @contextmanager
    def _norms(self, *, is_training: bool) -> Iterator[None]:
        """Set train or eval mode inside the block, and put all buffers back afterwards."""
        was_training = self.training
        kept = [(buffer, buffer.clone()) for buffer in self.buffers()] if is_training else []
        self.train(is_training)
        try:
            yield
        finally:
            self.train(was_training)
            for buffer, value in kept:
                buffer.copy_(value)
