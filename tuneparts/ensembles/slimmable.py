"""Slimmable networks: one set of weights at several widths (Yu et al. 2019).

A narrower member takes the first channels of every layer of the widest one. Norms and biases are
its own. All widths learn from each batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.models import Net
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members.learner import MembersConfig, MembersLearner
from tuneparts.training.members.lending import give_up_weights, lent
from tuneparts.training.members.model import Members


class SlimmableConfig(MembersConfig):
    """The same net at several widths."""

    method: Literal["slimmable"] = "slimmable"
    members: tuple[Net, ...] = Field(
        default=("digits_cnn", {"name": "digits_cnn", "channels": (8, 16), "hidden": 32}),
        min_length=1,
        validate_default=True,
    )
    """The widest first; the others have the same layers with fewer channels."""

    def build(self, context: Context) -> Learner:
        return SlimmableLearner(self, context)


class Slimmable(Members):
    """Nets that cut their weights from the first one's.

    Args:
        nets: the widest first.
        flops: of each net for one example.
    """

    def __init__(self, nets: Sequence[nn.Module], flops: Sequence[int]) -> None:
        super().__init__()
        self._sizes = [_sizes(net) for net in nets]
        for member, sizes in enumerate(self._sizes):
            _check_fits(sizes, self._sizes[0], member)
        for net, sizes in zip(nets[1:], self._sizes[1:], strict=True):
            give_up_weights(net, list(sizes))
        self.nets = nn.ModuleList(nets)
        self._flops = list(flops)

    @property
    def num_members(self) -> int:
        return len(self.nets)

    def member_flops(self) -> list[int]:
        return list(self._flops)

    def forward(self, x: Tensor) -> Tensor:
        with self._lent():
            return torch.stack([net(x) for net in self.nets])

    def plain(self, member: int) -> nn.Module:
        net = deepcopy(self.nets[member])
        for name, weight in self._cut(member).items() if member else ():
            net.get_submodule(name).register_parameter(
                "weight", nn.Parameter(weight.detach().clone())
            )
        return net

    def _cut(self, member: int) -> dict[str, Tensor]:
        widest = self.nets[0]
        return {
            name: _weight(widest, name)[tuple(slice(size) for size in shape)]
            for name, shape in self._sizes[member].items()
        }

    @contextmanager
    def _lent(self) -> Iterator[None]:
        with ExitStack() as stack:
            for member in range(1, len(self.nets)):
                stack.enter_context(lent(self.nets[member], self._cut(member)))
            yield


class SlimmableLearner(MembersLearner):
    """The sum of the losses of all widths."""

    config: SlimmableConfig

    def __init__(self, config: SlimmableConfig, context: Context) -> None:
        super().__init__(config, context)
        self.model = Slimmable(*self.initial_nets(config.members)).to(context.device)
        self.optimiser = config.optimiser.build(self.model)


def _weight(net: nn.Module, name: str) -> Tensor:
    return net.get_parameter(f"{name}.weight")


def _sizes(net: nn.Module) -> dict[str, torch.Size]:
    """Shapes of the weights of convolution and linear layers, by name."""
    return {
        name: module.weight.shape
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }


def _check_fits(sizes: dict[str, torch.Size], widest: dict[str, torch.Size], member: int) -> None:
    for name in {**sizes, **widest}:
        own, full = sizes.get(name), widest.get(name)
        if own is None or full is None or any(a > b for a, b in zip(own, full, strict=True)):
            raise ConfigError(
                "the first member must have every layer of the others, at least as wide, but "
                f"`{name}` of member {member} has weights {own} where the first has {full}. "
                "Use one net at several widths, the widest first."
            )
