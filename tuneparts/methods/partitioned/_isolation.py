"""What a net must not do, because it would carry data past the partitions: seen by running it.

Hyperparameters are judged by chunks that a subnetwork never saw. A net can undo that in three ways
that no shape of any tensor shows: by a buffer of its own that remembers a batch, by weights that it
reads past the layers that hold them, and, in a mixed batch, by mixing rows of different levels.
Each check takes a few inputs and leaves what it looks at as it is.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._assign import Role
from tuneparts.methods.partitioned.mixed import MixedBatch
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.surgery import reweighted, under_all_names
from tuneparts.nets.survey import copied, is_lent

_ROWS = 3
"""Examples of each level. An odd number, so that a net that swaps neighbours crosses levels."""
_TOLERANCE = 1e-4
"""Of the largest output: what mixes rows differs by far more. Gradients must be exactly zero."""
_CAUSE = (
    "The net mixes the rows of a batch, or reads a weight outside of its layer's call. Set `mixed` "
    "to false."
)


def check_buffers(net: nn.Module, x: Tensor) -> None:
    """Refuse a net that changes buffers of its own, other than norms' statistics, when called."""
    own = {
        name
        for layer, module in net.named_modules()
        if not isinstance(module, _NormBase)
        for name, _ in module.named_buffers(layer, recurse=False)
    }
    if not own:
        return
    called = copied(net).train()
    with seeding.isolated(0, "probe"), torch.no_grad():
        called(x)
    before, after = (dict(one.named_buffers()) for one in (net, called))
    changed = [name for name in after if name in own and not torch.equal(after[name], before[name])]
    if changed:
        raise ConfigError(
            f"a forward pass changes the buffer `{changed[0]}`, which all subnetworks read: chunks "
            "that judge a subnetwork must leave no trace in it. Keep statistics in torch's norms."
        )


def check_lent(net: nn.Module, x: Tensor, names: Sequence[str]) -> None:
    """Refuse a net that reads the parameters of these names past the layers that hold them."""

    def works(names: Sequence[str]) -> bool:
        return is_lent(net, x, names, lambda net, lent: reweighted(net, under_all_names(net, lent)))

    if not works(names):
        wrong = [name for name in names if not works([name])] or names
        raise ConfigError(
            f"other values in {', '.join(f'`{name}`' for name in wrong)} do not change the outputs "
            "as they should: a net must use its parameters through the layers that hold them. Keep "
            "layers as attributes or in an nn.ModuleList, and without hooks."
        )


def check_mixable(parts: PartitionedNet, x: Tensor) -> None:
    """Refuse a net, under the node scheme, in which levels of a mixed batch reach each other.

    At other weights, in float64 where the net takes that, each example's output must be that of its
    own subnetwork, and a level's loss must depend on no partition and no examples but its own.
    """
    try:
        _check_levels(_stirred(parts).double(), x.double() if x.is_floating_point() else x)
    except ConfigError:
        raise
    except Exception:  # a forward that makes tensors of its own in float32
        _check_levels(_stirred(parts), x)


@torch.no_grad()
def _stirred(parts: PartitionedNet) -> PartitionedNet:
    """A copy at other weights: one that starts at zero would hide what it leads to."""
    generator = torch.Generator().manual_seed(0)
    other = copied(parts)
    assert isinstance(other, PartitionedNet)
    for name, role in parts.roles.items():
        if role is Role.HELD:
            continue
        values = other.net.get_parameter(name) if role is Role.ENTRIES else other.parts_of(name)
        is_matrix = role is Role.ENTRIES and values.dim() > 1
        scale = max(1, values[0].numel()) ** -0.5 if is_matrix else 0.1
        values.add_(scale * torch.randn(values.shape, generator=generator).to(values))
    return other


def _check_levels(parts: PartitionedNet, x: Tensor) -> None:
    levels_N = torch.tensor(parts.filled, device=x.device).repeat_interleave(_ROWS)
    x = x[torch.arange(len(levels_N), device=x.device) % len(x)]
    with seeding.alone([x.device] if x.device.type == "cuda" else []):
        torch.manual_seed(0)
        _check_outputs(parts, levels_N, x)
        _check_gradients(parts, levels_N, x)


@torch.no_grad()
def _check_outputs(parts: PartitionedNet, levels_N: Tensor, x: Tensor) -> None:
    parts.net.eval()
    outputs_NK = MixedBatch(parts, levels_N, trainable=False)(x.clone())
    for level in parts.filled:
        rows_N = levels_N == level
        alone = parts.run(parts.view(level), x[rows_N])
        bound = _TOLERANCE * float(alone.abs().max())
        if not torch.allclose(outputs_NK[rows_N], alone, rtol=0, atol=bound, equal_nan=True):
            raise ConfigError(f"subnetwork {level} is another in a mixed batch. {_CAUSE}")


def _check_gradients(parts: PartitionedNet, levels_N: Tensor, x: Tensor) -> None:
    parts.net.train()  # some nets mix rows in training alone
    batch = MixedBatch(parts, levels_N)
    leaves = {f"`{name}`": leaf for name, leaf in batch.named_leaves.items()}
    # To which level each entry, or row, of a leaf belongs.
    rows_C = torch.arange(1, parts.num_partitions + 1, device=x.device)
    owners = [
        parts.map_of(name) if parts.roles[name] is Role.ENTRIES else rows_C
        for name in batch.named_leaves
    ]
    if x.is_floating_point():
        leaves["the inputs"] = x = x.clone().requires_grad_()
        owners.append(levels_N)
    outputs_NK = batch(x.clone())
    seen = torch.randn(outputs_NK.shape, generator=torch.Generator().manual_seed(0))
    products_NK = outputs_NK * seen.to(outputs_NK)
    for level in parts.filled:
        loss = products_NK[levels_N == level].sum()
        grads = torch.autograd.grad(loss, [*leaves.values()], retain_graph=True, allow_unused=True)
        for what, grad, owner in zip(leaves, grads, owners, strict=True):
            if grad is not None and grad[owner != level].any():
                raise ConfigError(
                    f"the loss of level {level} depends on {what} of others in a mixed batch. "
                    f"{_CAUSE}"
                )
