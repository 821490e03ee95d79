"""Hierarchical Neural Ensembles: members are the paths of a binary tree (HNE, Ruiz & Verbeek 2021).

A net is cut into B + 1 blocks. The first is shared by all members; after each block every branch
parts into two, so that there are N = 2^B leaves, one for each member, and 2^b blocks at depth b.
Members are evaluated from left to right, and each costs only the blocks that the ones before it did
not compute. The prediction after n members is the mean of their logits.

Training: each member learns from labels, and the small ensembles, of the first
1, 2, 4, ... members, learn from the full one, whose prediction F_{1:N} is not differentiated:

    (1 - alpha) sum_n CE(F_n, y) + alpha sum_{b < B} CE(F_{1:2^b}, softmax F_{1:N})

Members themselves are not drawn to their mean, and stay different.

Legend: M = N members, B examples, K classes.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.ensembles.config import Hne
from tuneparts.nets.sizes import shape_of_one, shapes_of
from tuneparts.training.forward import run
from tuneparts.training.learner import Context
from tuneparts.training.members import Members, MembersLearner, OperatingPoint, nested_points


class Tree(Members):
    """Blocks by depth, from left to right; each member costs what it adds to those on its left."""

    def __init__(self, blocks: Sequence[Sequence[nn.Module]], flops: Sequence[int]) -> None:
        depth = len(blocks) - 1
        # A member parts from its left neighbour where its number as a path last turned right.
        parting = [depth + 1 - (member & -member).bit_length() for member in range(1, 2**depth)]
        super().__init__(2**depth, [sum(flops[shared:]) for shared in (0, *parting)])
        self.blocks = nn.ModuleList(nn.ModuleList(level) for level in blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x, self.num_members)

    def first(self, x: Tensor, num: int) -> Tensor:
        """Compute logits (num, B, K) of the first members, and no block that they do not need."""
        depth = len(self.blocks) - 1
        outputs = [x]
        for b, level in enumerate(self.blocks):
            assert isinstance(level, nn.ModuleList)
            needed = -(-num // 2 ** (depth - b))
            outputs = [level[k](outputs[k // 2]) for k in range(needed)]
        return torch.stack(outputs)

    def plain(self, member: int) -> nn.Module:
        depth = len(self.blocks) - 1
        return nn.Sequential(
            *(level[member >> (depth - b)] for b, level in enumerate(self.blocks))  # type: ignore[index]
        )


class MeanLogits(nn.Module):
    def __init__(self, model: Members) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits_BK: Tensor = self.model(x).mean(dim=0)
        return logits_BK


class HneLearner(MembersLearner):
    config: Hne
    model: Tree

    def __init__(self, config: Hne, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        starts: list[int] = []
        blocks: list[list[nn.Module]] = [[] for _ in range(config.levels + 1)]
        for member in range(config.num_members):
            with seeding.isolated(context.seed, "init", member):
                net = config.net.build(task.in_shape, task.num_outputs)
            if not starts:
                starts, flops = cut(net, len(blocks), task.in_shape, is_whole=task.has_tokens)
            assert isinstance(net, nn.Sequential)  # `cut` has refused others
            for b, (start, stop) in enumerate(pairwise([*starts, len(net)])):
                # A block is that of the leftmost member below it.
                if member % 2 ** (config.levels - b) == 0:
                    blocks[b].append(net[start:stop])
        self.model = Tree(blocks, flops).to(context.device)
        self.laid_out(self.model)
        self.optimiser = self.new_optimiser(self.model)

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        """Compute the terms of the loss, weighted: of each member, then of each small ensemble."""
        alpha = self.config.alpha
        logits_MBK = run(self.model, x)
        by_labels = [self.training_loss(logits_BK, y_B) for logits_BK in logits_MBK]
        taught_BK = logits_MBK.mean(dim=0).detach().softmax(dim=1)
        firsts = [logits_MBK[: 2**b].mean(dim=0) for b in range(self.config.levels)]
        by_teacher = [self.target.loss(mean_BK, taught_BK) for mean_BK in firsts]
        terms = [(1 - alpha) * loss for loss in by_labels] + [alpha * loss for loss in by_teacher]
        return torch.stack(terms)

    def combined(self, outputs_MBK: Tensor) -> Tensor:
        return outputs_MBK.mean(dim=0)

    def predictor(self) -> nn.Module:
        return MeanLogits(self.model)

    def points(self, logits_MNK: Tensor, labels_N: Tensor) -> list[OperatingPoint]:
        nums = range(1, len(logits_MNK) + 1)
        firsts = [(tuple(range(num)), self.combined(logits_MNK[:num])) for num in nums]
        return nested_points(firsts, labels_N, self.model.flops)


def cut(
    net: nn.Module, num_blocks: int, in_shape: tuple[int, ...], *, is_whole: bool = False
) -> tuple[list[int], list[int]]:
    """Cut a net into blocks so that the most expensive costs least: their starts and operations.

    Each begins with a layer that has weights: siblings would be equal without, and a layer that
    works in place would change what its sibling reads.
    """
    if not isinstance(net, nn.Sequential):
        raise ConfigError(
            "a tree is made of the parts of an nn.Sequential, but the net is a "
            f"{type(net).__name__}. Use `wide_resnet`, or make yours one."
        )
    costs, x = [], shape_of_one(net, in_shape, is_whole=is_whole)
    for layer in shapes_of(net).children():
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            x = layer(x)
        costs.append(counter.get_total_flops())
    places = [i for i, layer in enumerate(net) if any(True for _ in layer.parameters())][1:]
    if len(places) < num_blocks - 1:
        raise ConfigError(
            f"a tree of {num_blocks - 1} levels has {num_blocks} blocks, but the net can be cut "
            f"into {len(places) + 1} at most. Use fewer levels, or a deeper net."
        )

    def spread(chosen: tuple[int, ...]) -> list[int]:
        bounds = pairwise([0, *chosen, len(costs)])
        return [sum(costs[start:stop]) for start, stop in bounds]

    best = min(combinations(places, num_blocks - 1), key=lambda chosen: max(spread(chosen)))
    return [0, *best], spread(best)
