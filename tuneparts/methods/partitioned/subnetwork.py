"""Subnetworks: the forward views of one net with partitions 1..k (Mlodozeniec et al. 2023).

Subnetwork k reads the weights of partitions 1..k and default values everywhere else. It is run
through the net's own forward, whatever that is; the net itself holds the weights.

Shapes: n entries of a parameter, m of them owned by one partition, C partitions.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._assign import Role, Units, order_of, random_labels, roles_of
from tuneparts.methods.partitioned.config import Defaults, Scheme, _checked_proportions
from tuneparts.nets.surgery import reweighted, tied_names

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Share:
    """What one partition owns of one parameter."""

    name: str
    flat_n: Tensor
    index_m: Tensor | None
    """Owned positions, int32; None for all of them."""

    def gather(self, dense: Tensor) -> Tensor:
        """The owned entries (m,) of a tensor that has the parameter's shape."""
        flat_n = dense.reshape(-1)
        return flat_n if self.index_m is None else flat_n.index_select(0, self.index_m)

    def scatter(self, values_m: Tensor) -> None:
        """Write the owned entries; every other keeps its bits."""
        if self.index_m is not None:
            self.flat_n.scatter_(0, self.index_m.long(), values_m)
        elif values_m.data_ptr() != self.flat_n.data_ptr():
            self.flat_n.copy_(values_m)


@dataclass(frozen=True)
class View:
    """One subnetwork as tensors that stand in for the net's own."""

    level: int
    tensors: dict[str, Tensor]
    leaves: list[Tensor]
    """What a weight step differentiates by: one per share of partition `level`, in order."""

    def grads(self) -> dict[int, list[Tensor | None]]:
        """The gradients of the leaves, by partition, as its optimiser takes them."""
        return {self.level: [leaf.grad for leaf in self.leaves]}


class PartitionedNet(nn.Module):
    """A net whose weights are dealt out to C partitions.

    Calling it runs subnetwork C, that is all weights. The random scheme deals out any weights; the
    node scheme needs linear and convolutional layers, norms and scalars.

    Args:
        net: at its initial values; its linear and convolutional weights stay in place and train.
        proportions: share of the weights per partition; a partition with share 0 owns nothing.
        seed: draws the assignment.
        scheme: "random" deals out entries, "node" units.
        defaults: what a subnetwork reads for partitions beyond its own: zeros, or the initial
            values, which deep nets without norms need.
        rebuild: makes the net again at its initial values; then no second copy of them is kept.
        num_held: leading layers that belong to no partition, such as a feature extractor that is
            learnt as a hyperparameter.
        example: one input (1, ...); only the node scheme needs it, to see which unit feeds which.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        proportions: Sequence[float],
        seed: int,
        scheme: Scheme = "random",
        defaults: Defaults = "zero",
        rebuild: Callable[[], nn.Module] | None = None,
        num_held: int = 0,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.proportions = _checked_proportions(proportions)
        self.num_partitions = len(self.proportions)
        self.roles = roles_of(net, num_held=num_held)
        self.units: dict[str, Units] | None = None
        """Of the node scheme: those around every linear and convolutional layer, by its name."""
        self._defaults = defaults
        self._rebuild = rebuild if defaults == "initial" else None
        self._tied = tied_names(net)
        if scheme == "node":
            if example is None:
                raise ConfigError("the node scheme got no `example`. Pass one batch of inputs.")
            if defaults != "zero":
                raise ConfigError(f"defaults={defaults!r}: the node scheme has zero defaults.")
            self.units = Units.probed(net, self.roles, self.proportions, example=example, seed=seed)
        # A plain dict, since finding a parameter by its dotted name at each step takes long.
        self._own = {name: p for name, p in net.named_parameters() if name in self.roles}
        for name, role in self.roles.items():
            if role is Role.ENTRIES:
                self._deal_out(name, seed)
            elif role is not Role.HELD:
                # A factor or summand each; all subnetworks start as the net's own layer.
                own = self._own[name].detach()
                neutral = torch.full_like(own, float(role is Role.PRODUCT))
                rows = torch.stack([own, *[neutral] * (self.num_partitions - 1)])
                self.register_parameter(_key("parts", name), nn.Parameter(rows))
        norms = [(name, norm) for name, norm in net.named_modules() if isinstance(norm, _NormBase)]
        self.normed = [name for name, norm in norms if norm.running_mean is not None]
        """Norms that keep running statistics, by name; each partition has statistics of its own."""
        for key in self._statistics():
            rows = torch.stack([net.get_buffer(key)] * self.num_partitions)
            layer, _, statistic = key.rpartition(".")
            self.register_buffer(_key(statistic, layer), rows)
        self._index()
        alone = (n for n, role in self.roles.items() if role is Role.ENTRIES)
        unseen = [n for n in alone if n.rpartition(".")[0] not in (self.units or {})]
        self.unmixable = next(iter([*self._tied, *unseen]), None)
        """A weight that is not of one layer alone, whose gradients no layer can take apart."""
        for k in self.filled:
            if not self.shares(k):
                raise ConfigError(
                    f"partition {k} of proportions {self.proportions} owns none of this small "
                    "net's weights. Use fewer partitions, larger shares or a larger net."
                )

    @property
    def filled(self) -> list[int]:
        return [k for k, share in enumerate(self.proportions, start=1) if share > 0]

    def held(self) -> list[nn.Parameter]:
        """Parameters of no partition that still require gradients."""
        named = self.net.named_parameters()
        return [p for n, p in named if self.roles[n] is Role.HELD and p.requires_grad]

    def map_of(self, name: str) -> Tensor:
        """The partition of each entry of a weight, uint8, in the weight's shape."""
        return self._named("map", name)

    def order_of(self, name: str) -> tuple[Tensor, tuple[int, ...]]:
        """The entries of a weight sorted by partition, and where each partition starts."""
        return self._named("order", name), self._offsets[name]

    def parts_of(self, name: str) -> Tensor:
        """The factors or summands (C, ...) of an affine parameter, one row per partition."""
        return self._named("parts", name)

    def shares(self, k: int) -> list[Share]:
        """What partition k owns, in the order of the net's parameters."""
        if k not in self.filled:
            return []
        shares = []
        for name, role in self.roles.items():
            if role is Role.ENTRIES:
                flat_n = self._own[name].detach().view(-1)
                order_n, offsets = self.order_of(name)
                own_m = order_n[offsets[k - 1] : offsets[k]]
                if len(own_m):
                    is_whole = len(own_m) == len(flat_n)
                    shares.append(Share(name, flat_n, None if is_whole else own_m))
            elif role is not Role.HELD:
                row = self.parts_of(name).detach()[k - 1]
                shares.append(Share(name, row.view(-1), None))
        return shares

    def view(self, level: int, *, trainable: bool = False) -> View:
        """Subnetwork `level` (0..C) as tensors.

        If `trainable`, what its own partition owns is differentiable; else held parameters are.
        """
        if not 0 <= level <= self.num_partitions:
            raise ConfigError(f"subnetworks are numbered 0 to {self.num_partitions}, not {level}.")
        # The last subnetwork that owns weights: an empty partition adds nothing.
        level = max((k for k in self.filled if k <= level), default=0)
        leaves: list[Tensor] = []
        tensors: dict[str, Tensor] = {}
        redrawn = self._rebuild() if self._rebuild and level < self.filled[-1] else None
        for name, role in self.roles.items():
            if role is Role.HELD:
                parameter = self._own[name]
                tensors[name] = parameter.detach() if trainable else parameter
            elif role is Role.ENTRIES:
                tensors[name] = self._entries(name, level, redrawn)
                if trainable and self._offsets[name][level - 1] < self._offsets[name][level]:
                    leaves.append(tensors[name].requires_grad_())
            else:
                tensors[name], leaf = self._combined(name, level, trainable=trainable)
                if trainable:
                    leaves.append(leaf)
        for name, further in self._tied.items():
            tensors |= dict.fromkeys(further, tensors[name])
        for key in self._statistics() if level else ():
            layer, _, statistic = key.rpartition(".")
            tensors[key] = self._named(statistic, layer)[level - 1]
        return View(level, tensors, leaves)

    def _statistics(self) -> list[str]:
        return [f"{name}.{statistic}" for name in self.normed for statistic in _STATISTICS]

    def run(self, view: View, x: Tensor, *, learns_statistics: bool = False) -> Any:
        """The net's own forward with a view's tensors in place of its own.

        Norms use and track the statistics of the batch if `learns_statistics`; only updates
        may, since hyperparameter steps would leak their chunk into a subnetwork.
        """
        net = reweighted(self.net, view.tensors)
        if not learns_statistics:
            for name in self.normed:
                net.get_submodule(name).training = False
        return net(x)

    @torch.no_grad()
    def recalibrated(self, view: View, predict: Callable[[Callable[[Tensor], Any]], None]) -> View:
        """A view whose norms have the plain means of what `predict` calls its net on."""
        tensors = dict(view.tensors)
        tensors |= {key: torch.zeros_like(tensors[key]) for key in self._statistics()}
        net = reweighted(self.net, tensors).eval()
        for name in self.normed:
            norm = net.get_submodule(name)
            assert isinstance(norm, _NormBase)
            norm.training = True
            norm.momentum = None  # a cumulative average
        predict(net)
        return View(view.level, tensors, [])

    def forward(self, x: Tensor, level: int | None = None) -> Any:
        """What subnetwork `level` makes of a batch; all partitions are active if None."""
        return self.run(self.view(self.num_partitions if level is None else level), x)

    @torch.no_grad()
    def merged(self, into: nn.Module | None = None) -> nn.Module:
        """Write all that subnetwork C reads into a net of the same kind, the own one if None."""
        net = self.net if into is None else into
        tensors = self.view(self.num_partitions).tensors
        for name, own in [*net.named_parameters(), *net.named_buffers()]:
            if name in tensors and tensors[name].data_ptr() != own.data_ptr():
                own.copy_(tensors[name])
        return net

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        result = super().load_state_dict(*args, **kwargs)
        self._index()
        return result

    def _deal_out(self, name: str, seed: int) -> None:
        parameter = self._own[name]
        parameter.data = parameter.data.contiguous()
        if self.units is not None:
            labels = torch.ones(parameter.shape, dtype=torch.uint8)  # where no unit is known
            for place in (name, *self._tied.get(name, ())):
                # A tied weight joins units at each of its places; the latest of them owns it.
                layer, _, kind = place.rpartition(".")
                if layer in self.units:
                    own = self.units[layer].labels_of(kind, parameter.shape)
                    labels = torch.maximum(labels, own)
        else:
            generator = seeding.torch_generator(seed, "assign", name)
            labels = random_labels(parameter.numel(), self.proportions, generator=generator)
        self.register_buffer(_key("map", name), labels.view(parameter.shape).to(parameter.device))
        if self._defaults == "initial" and self._rebuild is None:
            self.register_buffer(_key("default", name), parameter.detach().clone())

    def _index(self) -> None:
        self._offsets: dict[str, tuple[int, ...]] = {}
        for name, role in self.roles.items():
            if role is Role.ENTRIES:
                labels_n = self.map_of(name).view(-1)
                order_n, self._offsets[name] = order_of(labels_n, self.num_partitions)
                self.register_buffer(_key("order", name), order_n, persistent=False)

    def _entries(self, name: str, level: int, redrawn: nn.Module | None) -> Tensor:
        weight = self._own[name].detach()
        start = self._offsets[name][level]
        if start == weight.numel():
            return weight  # every entry is active: the weight itself, without a copy
        effective = weight.clone()
        later = self._named("order", name)[start:].long()
        if self._defaults == "zero":
            values = effective.new_zeros(len(later))  # faster than scattering a scalar
        else:
            kept = self._named("default", name) if redrawn is None else redrawn.get_parameter(name)
            values = kept.detach().to(weight.device).reshape(-1).index_select(0, later)
        effective.view(-1).scatter_(0, later, values)
        return effective

    def _combined(self, name: str, level: int, *, trainable: bool) -> tuple[Tensor, Tensor]:
        """Product or sum of the first `level` parts, and the last of them as a leaf."""
        parts = self.parts_of(name).detach()
        is_product = self.roles[name] is Role.PRODUCT
        if level == 0:
            return (torch.full_like(parts[0], float(is_product)),) * 2
        leaf = parts[level - 1].requires_grad_() if trainable else parts[level - 1]
        if level == 1:
            return leaf, leaf
        before = parts[: level - 1]
        return (before.prod(0) * leaf if is_product else before.sum(0) + leaf), leaf

    def _named(self, kind: str, name: str) -> Tensor:
        tensor: Tensor = getattr(self, _key(kind, name))
        return tensor


@functools.cache
def _key(kind: str, name: str) -> str:
    """A buffer or parameter name for a tensor of the net; torch allows no dots in it."""
    return f"{kind}:{name}".replace(".", "/")
