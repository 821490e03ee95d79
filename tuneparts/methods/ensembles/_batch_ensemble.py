"""BatchEnsemble: one weight, and a rank-one change of it for each member (Wen et al. 2020).

Member m has the weight W_m = W o (s_m r_m^T): inputs are multiplied by its vector r_m and outputs
by s_m, its fast weights. One forward pass over a batch that is repeated for each member therefore
computes all members at once.

Legend: M members, B batch, N = M * B, C channels or units, K classes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.methods.ensembles.config import BatchEnsemble, FastStart
from tuneparts.nets import surgery
from tuneparts.nets.sizes import count_flops
from tuneparts.training.learner import Context
from tuneparts.training.members import Members, MembersLearner


class RankOne(nn.Module):
    """A layer whose weight each member multiplies by a rank-one matrix, with a bias per member."""

    def __init__(
        self,
        layer: nn.Conv2d | nn.Linear,
        num_members: int,
        generator: torch.Generator,
        start: FastStart = "signs",
    ) -> None:
        super().__init__()
        self.layer = layer
        num_in = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        self._ones = (1,) * (layer.weight.dim() - 2)
        fast = []
        for num in (num_in, layer.weight.shape[0]):
            shape = (num_members, num)
            if start == "normal":
                fast.append(1 + 0.5 * torch.randn(shape, generator=generator))
            else:
                fast.append(torch.randint(2, shape, generator=generator).float() * 2 - 1)
        self.r_MC, self.s_MC = map(nn.Parameter, fast)
        self.bias_MC: nn.Parameter | None = None
        if layer.bias is not None:
            self.bias_MC = nn.Parameter(layer.bias.detach().repeat(num_members, 1))
            layer.bias = None

    def forward(self, x_N: Tensor) -> Tensor:
        """Map (M * B, C, ...) to (M * B, C', ...), member by member."""
        y_N: Tensor = self.layer(x_N * self._each(self.r_MC, x_N)) * self._each(self.s_MC, x_N)
        return y_N if self.bias_MC is None else y_N + self._each(self.bias_MC, x_N)

    def _each(self, values_MC: Tensor, x_N: Tensor) -> Tensor:
        """Repeat each member's values for its examples: (M * B, C, 1, 1) or (M * B, C)."""
        per_example = values_MC.repeat_interleave(len(x_N) // len(values_MC), dim=0)
        return per_example.view(*per_example.shape, *self._ones)


class MemberNorms(nn.Module):
    """BatchNorm with parameters and statistics of its own for each member's part of the batch."""

    def __init__(self, norm: nn.BatchNorm2d, num_members: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(norm.num_features) for _ in range(num_members))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        parts = x_NCHW.chunk(len(self.norms))
        return torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)])


class BatchEnsembleNets(Members):
    """A net changed in place so that it computes all members at once; `flops` are of one."""

    def __init__(
        self,
        net: nn.Module,
        num_members: int,
        *,
        member_norms: bool,
        flops: int,
        generator: torch.Generator,
        start: FastStart = "signs",
    ) -> None:
        super().__init__(num_members, [flops] * num_members)

        def rank_one(_: str, layer: Any) -> RankOne:
            return RankOne(layer, num_members, generator, start)

        for kind in (nn.Conv2d, nn.Linear):
            if surgery.find(net, kind):
                surgery.replace(net, kind, rank_one)
        if member_norms:
            surgery.replace(net, nn.BatchNorm2d, lambda _, norm: MemberNorms(norm, num_members))
        self.net = net

    def fast_weights(self) -> list[nn.Parameter]:
        layers = surgery.find(self, RankOne).values()
        return [parameter for layer in layers for parameter in (layer.r_MC, layer.s_MC)]

    def forward(self, x: Tensor) -> Tensor:
        repeated = x.repeat(self.num_members, *[1] * (x.dim() - 1))
        logits_NK: Tensor = self.net(repeated)
        return logits_NK.view(self.num_members, len(x), -1)


class BatchEnsembleLearner(MembersLearner):
    config: BatchEnsemble
    model: BatchEnsembleNets

    def __init__(self, config: BatchEnsemble, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        with seeding.isolated(context.seed, "init"):
            net = self.laid_out(config.net.build(task.in_shape, task.num_outputs))
        self.model = BatchEnsembleNets(
            net,
            config.num_members,
            member_norms=config.member_norms,
            flops=count_flops(net, task.in_shape, is_whole=task.has_tokens),
            generator=seeding.torch_generator(context.seed, "init", "signs"),
            start=config.fast_start,
        ).to(context.device)
        self.optimiser = self.new_optimiser(self.model)
        fast = self.model.fast_weights()
        names = {id(parameter) for parameter in fast}
        for group in self.optimiser.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in names]
        self.optimiser.add_param_group(
            {"params": fast, "lr_factor": config.fast_lr_factor, "weight_decay": 0.0}
        )

    def objective(self, loss_M: Tensor) -> Tensor:
        return loss_M.mean()
