"""Which weights belong to which partition (Mlodozeniec et al. 2023, appendices C and I.2).

Weights are dealt out entry by entry: a map gives every entry of a weight tensor its partition, 1 to
C, as one byte. The random scheme deals out each tensor by itself, whatever layer it is of. The node
scheme labels hidden units, which are outputs of linear layers and channels of convolutions, and a
weight belongs to the later one of the two units that it joins. What feeds what is seen by running
the net's own forward with units masked level by level, and not read from its code: so flattening,
pooling and residual sums need no rules.

The affine parameters of norms and the scalars of FixUp have too few entries and too much effect to
be dealt out: every partition has a scale and a shift of its own, and subnetwork k applies the
product and the sum of the first k.

Shapes: n entries of a tensor, I input units and O output units of a layer, N inputs of the probe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import sizes
from tuneparts.nets.layers import Bias, ScalarMultiplier
from tuneparts.nets.surgery import reweighted


def random_labels(
    num_entries: int, proportions: Sequence[float], *, generator: torch.Generator
) -> Tensor:
    """Partition of each entry of one tensor: uint8 (n,), in exact shares and random order.

    A tensor with fewer entries than partitions goes to partition 1: every subnetwork needs it.
    """
    num_partitions = len(proportions)
    if num_entries < num_partitions:
        return torch.ones(num_entries, dtype=torch.uint8)
    counts = torch.tensor(sizes(num_entries, proportions))
    labels_n = torch.arange(1, num_partitions + 1, dtype=torch.uint8).repeat_interleave(counts)
    return labels_n[torch.randperm(num_entries, generator=generator)]


def nested_labels(in_labels_I: Tensor, out_labels_O: Tensor) -> Tensor:
    """Partition of each weight between units: uint8 (O, I), the later of its two units.

    A weight in a subnetwork that masks its input would never get a gradient.
    """
    return torch.maximum(out_labels_O[:, None], in_labels_I[None, :])


def order_of(labels_n: Tensor, num_partitions: int) -> tuple[Tensor, tuple[int, ...]]:
    """Entries by partition, int32 (n,): k owns `order[offsets[k - 1] : offsets[k]]`."""
    order_n = torch.argsort(labels_n, stable=True).to(torch.int32)
    counts = torch.bincount(labels_n.long(), minlength=num_partitions + 1)
    return order_n, tuple(counts.cumsum(0).tolist())


class Role(Enum):
    """How a parameter is shared among partitions."""

    ENTRIES = "each entry belongs to one partition"
    PRODUCT = "each partition has a factor"
    SUM = "each partition has a summand"
    HELD = "belongs to no partition"


_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_ROLES: list[tuple[Any, Mapping[str, Role]]] = [
    (_NORMS, {"weight": Role.PRODUCT, "bias": Role.SUM}),
    (ScalarMultiplier, {"scale": Role.PRODUCT}),
    (Bias, {"bias": Role.SUM}),
]


def roles_of(net: nn.Module, *, num_held: int = 0) -> dict[str, Role]:
    """The role of every parameter by name; refuses a net without weights to deal out.

    Parameters that do not require gradients are held, and so are those of `num_held` leading linear
    or convolutional layers, with everything registered before the next one.
    """
    roles: dict[str, Role] = {}
    seen: set[int] = set()
    num_weighted = 0
    for layer_name, layer in net.named_modules():
        own = [(n, p) for n, p in layer.named_parameters(recurse=False) if id(p) not in seen]
        num_weighted += bool(own) and isinstance(layer, (nn.Linear, _ConvNd))
        for name, parameter in own:
            seen.add(id(parameter))
            full = f"{layer_name}.{name}" if layer_name else name
            is_held = num_weighted <= num_held > 0 or not parameter.requires_grad
            shared = (by_name.get(name) for types, by_name in _ROLES if isinstance(layer, types))
            roles[full] = Role.HELD if is_held else next(shared, None) or Role.ENTRIES
    if Role.ENTRIES not in roles.values():
        raise ConfigError(
            f"{type(net).__name__} must have weights to deal out, but its {len(roles)} parameters "
            "are held, or scale and shift. Hold fewer layers, or let weights require gradients."
        )
    return roles


_Weighted = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NUM_BUMPED = 16
"""Units of a layer, about, that are moved to see whether they are outputs."""


@dataclass(frozen=True)
class Units:
    in_labels: Tensor
    """Partition of each input unit, uint8 (I,)."""
    out_labels: Tensor
    """Partition of each output unit, uint8 (O,)."""
    is_silent: bool
    """Whether masked input units are zero by themselves, whatever the weights."""
    groups: int
    """Of a convolution: input and output units are connected within a group only."""

    def labels_of(self, kind: str, shape: torch.Size) -> Tensor:
        """Partition of each entry of the layer's `weight` or `bias`, uint8, in its shape."""
        if kind == "bias":
            return self.out_labels.clone()
        ends = self.in_labels.chunk(self.groups), self.out_labels.chunk(self.groups)
        labels_OI = torch.cat([nested_labels(*pair) for pair in zip(*ends, strict=True)])
        spatial = [1] * (len(shape) - 2)
        return labels_OI.view(*labels_OI.shape, *spatial).expand(shape).contiguous()

    @classmethod
    def probed(
        cls,
        net: nn.Module,
        roles: Mapping[str, Role],
        proportions: Sequence[float],
        *,
        example: Tensor,
        seed: int,
    ) -> dict[str, "Units"]:
        """Label the hidden units of a net and see what they feed, by inputs like the example.

        Inputs and outputs of the net and the units of held layers belong to partition 1. Layers of
        the same width share their labels, so that residual sums add like to like.
        """
        weighted, held = _weighted_layers(net, roles)
        probe = _Probe(net, weighted, example, seed)
        called = probe.run(level=1, with_biases=False)  # nothing is masked without labels
        outputs = probe.output_layers(list(called))
        for name in called:
            width = weighted[name].weight.shape[0]
            labels_O = torch.ones(width, dtype=torch.uint8)
            if name not in outputs and name not in held:
                generator = seeding.torch_generator(seed, "assign", "units", width)
                labels_O = random_labels(width, proportions, generator=generator)
            probe.out_labels[name] = labels_O
        levels = range(1, len(proportions) + 1)
        quiet = [probe.run(level=level, with_biases=False) for level in levels]
        loud = [probe.run(level=level, with_biases=True) for level in levels]
        has_norms = any(isinstance(module, _NORMS) for module in net.modules())
        found = {}
        for name, labels_O in probe.out_labels.items():
            active_SI = torch.stack([seen[name] for seen in quiet])
            first_I = active_SI.to(torch.uint8).argmax(0).to(torch.uint8) + 1
            beyond_SI = first_I > torch.tensor(levels)[:, None]
            # A norm may silence a unit by chance, so nothing behind one counts as silent.
            leaks = (torch.stack([seen[name] for seen in loud]) & beyond_SI).any()
            groups = getattr(weighted[name], "groups", 1)
            found[name] = cls(first_I, labels_O, not has_norms and not bool(leaks), groups)
        return found


class _Probe:
    """Runs a net at random positive weights and sees which units reach which layer."""

    def __init__(
        self, net: nn.Module, weighted: Mapping[str, Any], example: Tensor, seed: int
    ) -> None:
        generator = seeding.torch_generator(seed, "probe")
        self._net, self._weighted = net, weighted
        self.out_labels: dict[str, Tensor] = {}
        """Partition of each output unit by layer; units of later levels are masked."""

        def positive(like: Tensor) -> Tensor:
            drawn = torch.rand(like.shape, generator=generator) + 0.5
            # Mean outputs, so that depth neither overflows nor rounds a unit to zero.
            fan_in = max(1, like[0].numel()) if like.dim() > 1 else 1
            return (drawn / fan_in).to(like.device, like.dtype)

        shifts = {
            f"{name}.bias" if name else "bias"
            for name, module in net.named_modules()
            if isinstance(module, (*_Weighted, Bias, *_NORMS))
        }
        loud = {name: positive(p) for name, p in net.named_parameters()}
        quiet = {n: torch.zeros_like(p) if n in shifts else p for n, p in loud.items()}
        self._tensors = {True: loud, False: quiet}
        self._x = positive(example[:2]) * max(1, example[0].numel())

    def output_layers(self, names: Sequence[str]) -> set[str]:
        """Layers whose units are outputs of the net, each one output: all in partition 1.

        Such a unit moves its output alone, or all others by one amount, as before a log-softmax. If
        none is found, it is the last of the named ones in order of running, if it is as wide.
        """
        usual = self._call({})
        if not isinstance(usual, Tensor) or usual.dim() != 2:
            raise ConfigError(
                f"the net returns {type(usual).__name__}: the node scheme looks for layers that "
                "make the outputs (B, K). Let it return one tensor of that shape."
            )
        width = usual.shape[1]
        wide = [n for n in names if len(self._weighted[n].weight) == width]

        def is_output(name: str, unit: int) -> bool:
            def move(layer: nn.Module, _: Any, out: Tensor) -> Tensor:
                moved = out.clone()
                moved.select(_unit_axis(layer, out), unit).mul_(1.5).add_(0.5)
                return moved

            change_NK = self._call({name: move}) - usual
            others = torch.cat([change_NK[:, :unit], change_NK[:, unit + 1 :]], dim=1)
            common = others.mean(1, keepdim=True)
            size = change_NK.abs().max()
            own = (change_NK[:, unit] - common[:, 0]).abs().max()
            return bool((own > 1e-6 * (1 + size)) & ((others - common).abs().max() <= 1e-5 * size))

        units = range(0, width, max(1, width // _NUM_BUMPED))
        if width == 1:  # there are no others to compare with
            wide = []
        found = {name for name in wide if all(is_output(name, unit) for unit in units)}
        return found or {n for n in names[-1:] if len(self._weighted[n].weight) == width}

    def run(self, *, level: int, with_biases: bool) -> dict[str, Tensor]:
        """Units (I,) that are not zero, by layer, in the order in which the layers run."""
        seen: dict[str, Tensor] = {}

        def look(name: str, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            if name in seen:
                raise ConfigError(
                    f"`{name}` ({type(layer).__name__}) runs again: the node scheme needs layers "
                    "that run once per step. Use the random scheme."
                )
            axis = _unit_axis(layer, inputs[0])
            seen[name] = (inputs[0] != 0).transpose(0, axis).flatten(1).any(1).cpu()
            if not self.out_labels:
                return out
            hidden = (self.out_labels[name] > level).nonzero().view(-1)
            return out.index_fill(axis, hidden.to(out.device), 0.0)

        self._call({name: partial(look, name) for name in self._weighted}, with_biases=with_biases)
        return seen

    @torch.no_grad()
    def _call(self, hooks: Mapping[str, Any], *, with_biases: bool = True) -> Any:
        handles = [self._weighted[n].register_forward_hook(hook) for n, hook in hooks.items()]
        try:
            return reweighted(self._net, self._tensors[with_biases]).eval()(self._x)
        finally:
            for handle in handles:
                handle.remove()


def _unit_axis(layer: nn.Module, x: Tensor) -> int:
    return x.dim() - 1 if isinstance(layer, nn.Linear) else 1


def _weighted_layers(net: nn.Module, roles: Mapping[str, Role]) -> tuple[dict[str, Any], set[str]]:
    by_id = {id(p): roles[name] for name, p in net.named_parameters() if name in roles}
    layers: dict[str, Any] = {}
    for name, module in net.named_modules():
        is_weighted = isinstance(module, _Weighted)
        for key, parameter in module.named_parameters(recurse=False):
            if is_weighted and key == "weight":
                layers[name] = module
            is_known = is_weighted and key in ("weight", "bias")
            if by_id[id(parameter)] is Role.ENTRIES and not is_known:
                raise ConfigError(
                    f"`{name or 'the net itself'}` is a {type(module).__name__} with a parameter "
                    f"`{key}`: the node scheme labels units of linear and convolutional layers. "
                    "Use the random scheme."
                )
    if "" in layers:
        raise ConfigError("the net is a single layer and has no hidden units. Use another scheme.")
    return layers, {n for n, one in layers.items() if by_id[id(one.weight)] is not Role.ENTRIES}
