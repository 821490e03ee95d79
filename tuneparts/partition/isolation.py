"""What a net must not do, because it would carry data past the partitions: seen by running it.

Hypers are judged by chunks that a subnetwork never saw. A net can undo that in three ways that no
shape of any tensor shows: by a buffer of its own that remembers a batch, by weights that it reads
past the layers that hold them, and, in a mixed batch, by mixing rows of different levels.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tuneparts import seeding
from tuneparts.errors import ConfigError
from tuneparts.models.reweighted import reweighted, under_all_names
from tuneparts.models.survey import copied, is_lent
from tuneparts.partition.assign import Role
from tuneparts.partition.masked import LevelRows
from tuneparts.partition.node import MixedBatch
from tuneparts.partition.subnetwork import Partitioned

_ROWS = 3
"""Examples of each level. An odd number, so that a net that swaps neighbours crosses levels."""
_MOST_LEVELS = 3
_TOLERANCE = 1e-4
"""Of the largest output: what mixes rows differs by far more. Gradients must be exactly zero."""
_INPUTS = "the inputs"
_CAUSE = (
    "The net mixes the rows of a batch, or reads a weight outside of its layer's call. Set `mixed` "
    "to false."
)


def check_buffers(net: nn.Module, x: Tensor) -> None:
    """Refuse a net that changes buffers of its own when it is called.

    Running statistics of norms are kept apart for each subnetwork, and may change.

    Args:
        net: it is not changed.
        x: a few inputs.
    """
    own = {
        name
        for layer, module in net.named_modules()
        if not isinstance(module, _NormBase)
        for name, _ in module.named_buffers(layer, recurse=False)
    }
    if not own:
        return
    called = copy.deepcopy(net)
    before = copy.deepcopy(dict(called.named_buffers()))
    with seeding.isolated(0, "probe"), torch.no_grad():
        called.train()(x)
    after = dict(called.named_buffers())
    changed = [name for name in after if name in own and not torch.equal(after[name], before[name])]
    if changed:
        raise ConfigError(
            "a chunk that judges a subnetwork must leave no trace in it, but a forward pass "
            f"changes the buffer `{changed[0]}`, which all subnetworks read. Keep statistics in "
            "torch's own norms, or take the update out of the forward pass."
        )


def check_lent(net: nn.Module, x: Tensor, names: Sequence[str]) -> None:
    """Refuse a net that reads parameters past the layers that hold them.

    Args:
        net: it is not changed.
        x: a few inputs.
        names: of the parameters that subnetworks replace.
    """

    def works(names: Sequence[str]) -> bool:
        return is_lent(net, x, names, lambda net, lent: reweighted(net, under_all_names(net, lent)))

    if not works(names):
        wrong = [name for name in names if not works([name])] or names
        raise ConfigError(
            "a net must use its parameters through the layers that hold them, but other values in "
            f"{', '.join(f'`{name}`' for name in wrong)} do not change its outputs as they should. "
            "Keep layers as attributes or in an nn.ModuleList, and without hooks."
        )


def check_mixable(parts: Partitioned, x: Tensor) -> None:
    """Refuse a net in which the levels of a mixed batch reach each other.

    A copy at other weights is run on a few inputs, in float64 where its forward takes that: each
    example's output must be that of its own subnetwork, and the loss of a level must depend on no
    partition and on no examples but its own.

    Args:
        parts: under the node scheme; it is not changed.
        x: a few inputs, on the net's device.
    """
    try:
        _check_levels(_stirred(parts).double(), x.double() if x.is_floating_point() else x)
    except ConfigError:
        raise
    except Exception:  # a forward that makes tensors of its own in float32
        _check_levels(_stirred(parts), x)


@torch.no_grad()
def _stirred(parts: Partitioned) -> Partitioned:
    """A copy at other weights: one that starts at zero would hide what it leads to."""
    generator = torch.Generator().manual_seed(0)
    other = copied(parts)
    assert isinstance(other, Partitioned)
    for name, role in parts.roles.items():
        if role is Role.HELD:
            continue
        values = other.net.get_parameter(name) if role is Role.ENTRIES else other.parts_of(name)
        is_matrix = role is Role.ENTRIES and values.dim() > 1
        scale = max(1, values[0].numel()) ** -0.5 if is_matrix else 0.1
        values.add_(scale * torch.randn(values.shape, generator=generator).to(values))
    return other


def _check_levels(parts: Partitioned, x: Tensor) -> None:
    """Check the first levels and the last."""
    first, last = parts.filled[: _MOST_LEVELS - 1], parts.filled[_MOST_LEVELS - 1 :][-1:]
    levels_N = torch.tensor([*first, *last], device=x.device).repeat_interleave(_ROWS)
    x = x[torch.arange(len(levels_N), device=x.device) % len(x)]
    with seeding.alone([x.device] if x.device.type == "cuda" else []):
        torch.manual_seed(0)
        _check_outputs(parts, levels_N, x)
        _check_gradients(parts, levels_N, x)


@torch.no_grad()
def _check_outputs(parts: Partitioned, levels_N: Tensor, x: Tensor) -> None:
    parts.net.eval()
    batch = MixedBatch(parts, levels_N, trainable=False)
    outputs_NK = batch.run(x.clone())
    for one in batch.segments:
        alone = parts.run(parts.view(one.level), _rows(x, one).clone())
        bound = _TOLERANCE * float(alone.abs().max())
        if not torch.allclose(_rows(outputs_NK, one), alone, rtol=0, atol=bound, equal_nan=True):
            raise ConfigError(
                "an example of a mixed batch must have the output of its own subnetwork, but that "
                f"of subnetwork {one.level} is another beside other levels. {_CAUSE}"
            )


def _check_gradients(parts: Partitioned, levels_N: Tensor, x: Tensor) -> None:
    parts.net.train()  # some nets mix rows in training alone
    batch = MixedBatch(parts, levels_N)
    inputs = x.clone().requires_grad_(x.is_floating_point())
    outputs_NK = batch.run(inputs.clone())
    seen = torch.randn(outputs_NK.shape, generator=torch.Generator().manual_seed(0))
    products_NK = outputs_NK * seen.to(outputs_NK)
    leaves = {**batch.named_leaves, **({_INPUTS: inputs} if inputs.requires_grad else {})}
    labels = {name: _labels(parts, levels_N, name, leaf) for name, leaf in leaves.items()}
    for one in batch.segments:
        loss = _rows(products_NK, one).sum()
        grads = torch.autograd.grad(
            loss, list(leaves.values()), retain_graph=True, allow_unused=True
        )
        for name, grad in zip(leaves, grads, strict=True):
            if grad is not None and ((grad != 0) & (labels[name] != one.level)).any():
                raise ConfigError(
                    "the loss of an example in a mixed batch must depend on the weights and inputs "
                    f"of its own level alone, but that of level {one.level} depends on "
                    f"{name if name == _INPUTS else f'`{name}`'} of others. {_CAUSE}"
                )


def _labels(parts: Partitioned, levels_N: Tensor, name: str, leaf: Tensor) -> Tensor:
    """The level that may depend on each entry of a leaf, so that it meets the leaf's shape."""
    if parts.roles.get(name) is Role.ENTRIES:
        return parts.map_of(name)
    rows = levels_N if name == _INPUTS else torch.arange(1, len(leaf) + 1, device=leaf.device)
    return rows.view(-1, *[1] * (leaf.dim() - 1))


def _rows(tensor: Tensor, of: LevelRows) -> Tensor:
    return tensor[of.start : of.end]
