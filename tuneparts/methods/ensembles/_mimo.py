"""MIMO: several inputs, several outputs, one net (Havasi et al. 2021).

The net sees M images at once, stacked along channels, and has a head for each of them. Trained on
independent images it learns M predictors in one trunk; asked about one image M times it answers as
an ensemble, at the cost of one net.

Legend: M members, B batch, K classes.
"""

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.methods.ensembles.config import Mimo
from tuneparts.nets.sizes import count_flops
from tuneparts.training.forward import run
from tuneparts.training.learner import Context
from tuneparts.training.members import Members, MembersLearner


class MimoNets(Members):
    """A net from M stacked inputs (B, M * C, ...) to the logits (B, M * K) of all heads."""

    def __init__(self, net: nn.Module, num_members: int, flops: int) -> None:
        super().__init__(num_members, [flops])
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.jointly([x] * self.num_members)

    def jointly(self, inputs: list[Tensor]) -> Tensor:
        """Compute logits (M, B, K), those of member m for its own input (B, C, ...)."""
        logits = run(self.net, torch.cat(inputs, dim=1))
        return logits.view(len(logits), self.num_members, -1).transpose(0, 1)


class MimoLearner(MembersLearner, parts=("_orders",)):
    """Trains each head on the same batch in an order of its own."""

    config: Mimo
    model: MimoNets

    def __init__(self, config: Mimo, context: Context) -> None:
        super().__init__(config, context)
        task, num_members = context.task, config.num_members
        in_shape = (task.in_shape[0] * num_members, *task.in_shape[1:])
        with seeding.isolated(context.seed, "init"):
            net = config.net.build(in_shape, task.num_outputs * num_members)
        net = self.laid_out(net, in_shape)
        flops = count_flops(net, in_shape, is_whole=task.has_tokens)
        self.model = MimoNets(net, num_members, flops).to(context.device)
        self.optimiser = self.new_optimiser(self.model)
        self._orders = self.generator("mimo")

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        repeated = torch.arange(len(y_B), device=y_B.device).repeat(self.config.batch_repetitions)
        orders = [
            repeated[torch.randperm(len(repeated), generator=self._orders, device=y_B.device)]
            for _ in range(self.config.num_members)
        ]
        logits_MBK = self.model.jointly([x[order] for order in orders])
        pairs = zip(logits_MBK, orders, strict=True)
        return torch.stack([self.training_loss(logits, y_B[order]) for logits, order in pairs])
