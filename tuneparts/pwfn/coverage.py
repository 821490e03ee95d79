"""Which parameters of a net become Gaussians and are coded, and why the others stay in float.

Covered are the weights and biases of layers that multiply: linear and bilinear layers,
convolutions and their transposes, embeddings, attention, recurrent layers, and subclasses of them.
Norms, and parameters that a module of one's own holds itself, stay in float as in the paper. A net
is run before it is believed: one that keeps a second reference to a weight would read the old one.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tuneparts.errors import ConfigError
from tuneparts.models.survey import outputs
from tuneparts.pwfn.gaussian import Lent

LAYERS: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RNNCellBase,
)
"""Layers whose own parameters are covered."""


@dataclass(frozen=True)
class Coverage:
    """Names of the parameters that are covered, and what is left out."""

    names: tuple[str, ...]
    left_out: dict[str, str]
    """Parameters that stay in float, by name: the reason and how many numbers they are."""


def cover(net: nn.Module, x: Tensor | None = None) -> Coverage:
    """Choose the parameters of a net that become Gaussians; refuses one without any, or frozen.

    Args:
        net: it is not changed.
        x: a few inputs (B, ...), on the net's device, to try it with; it is not tried if None.

    Example:
        >>> found = cover(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
        >>> found.names
        ('0.weight', '0.bias', '2.weight', '2.bias')
        >>> found.left_out
        {'1.weight': 'is of a BatchNorm1d (3)', '1.bias': 'is of a BatchNorm1d (3)'}
    """
    _refuse_frozen(net)
    owners = _owners(net)
    names: list[str] = []
    left_out: dict[str, str] = {}
    for name, parameter in net.named_parameters():
        _refuse_unusable(name, parameter)
        reason = _reason(parameter, owners[id(parameter)])
        if reason is None:
            names.append(name)
        else:
            left_out[name] = f"{reason} ({parameter.numel()})"
    if x is not None and names:
        past = _read_past_their_layer(net, x, names)
        left_out |= {
            name: f"is read past its own layer ({net.get_parameter(name).numel()})" for name in past
        }
        names = [name for name in names if name not in past]
    if not names:
        reasons = "; ".join(f"`{name}` {reason}" for name, reason in left_out.items())
        raise ConfigError(
            "only layers that multiply (linear, convolution, embedding, attention, recurrent) can "
            f"be compressed, but {type(net).__name__} has none: "
            f"{reasons or 'it has no parameters'}."
        )
    return Coverage(tuple(names), left_out)


def _read_past_their_layer(net: nn.Module, x: Tensor, names: Sequence[str]) -> list[str]:
    """Find the parameters that a net reads in another way than from the layers that hold them.

    Each parameter gets other values, once as the net's own and once lent for the call. Outputs
    must change alike, up to rounding, in training and in evaluation.
    """
    generator = torch.Generator().manual_seed(0)
    values = {}
    for name in names:
        parameter = net.get_parameter(name).detach()
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        values[name] = parameter + noise * parameter.abs().mean().clamp(min=0.01)
    before = _twice(net, x)
    if any(bool(torch.isnan(logits).any()) for logits in before):
        raise ConfigError(
            f"a net must make numbers of its inputs, but {type(net).__name__} makes NaN of the "
            f"first {len(x)}. Look at its buffers, and at divisions, roots and logarithms in it."
        )
    if not all(torch.equal(a, b) for a, b in zip(before, _twice(net, x), strict=True)):
        raise ConfigError(
            "a net must compute the same twice from the same seed of torch, but "
            f"{type(net).__name__} is random in a way of its own. Draw from torch's generator."
        )

    def works(some: Sequence[str]) -> bool:
        owner = deepcopy(net)
        with torch.no_grad():
            for name in some:
                owner.get_parameter(name).copy_(values[name])
        lent = Lent(deepcopy(net), {name: values[name] for name in some})
        # Kernels may round differently where memory is aligned differently.
        return all(
            (a - b).abs().max() <= 1e-3 * (b - start).abs().max() + 1e-5 * b.abs().max()
            for a, b, start in zip(_twice(lent, x), _twice(owner, x), before, strict=True)
        )

    def failing(some: Sequence[str]) -> list[str]:
        if works(some):
            return []
        half = len(some) // 2
        return list(some) if not half else failing(some[:half]) + failing(some[half:])

    return failing(names)


def _twice(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Compute the outputs of copies in evaluation and in training."""
    return [outputs(deepcopy(net), x, training=training) for training in (False, True)]


def _owners(net: nn.Module) -> dict[int, list[tuple[str, nn.Module]]]:
    """The modules that hold each parameter, with the key, by the parameter's id."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for module in net.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((key, module))
    return owners


def _refuse_frozen(net: nn.Module) -> None:
    frozen = [name for name, parameter in net.named_parameters() if not parameter.requires_grad]
    if frozen and len(frozen) == len(list(net.parameters())):
        raise ConfigError(
            "weights are trained while they are fixed, but all parameters of "
            f"{type(net).__name__} are frozen ({len(frozen)}, such as `{frozen[0]}`). Call "
            "`net.requires_grad_()`, or unfreeze those that may move."
        )


def _refuse_unusable(name: str, parameter: nn.Parameter) -> None:
    if is_lazy(parameter):
        raise ConfigError(
            f"the net must know its shapes, but `{name}` is not initialised. Run a batch through "
            "the net first."
        )
    if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all()):
        raise ConfigError(
            f"weights must be finite, but `{name}` holds values that are not. Train the net anew."
        )


def _reason(parameter: nn.Parameter, owners: Sequence[tuple[str, nn.Module]]) -> str | None:
    """Say why a parameter stays in float; None if it is covered."""
    for _, module in owners:
        kind = type(module).__name__
        if not isinstance(module, LAYERS):
            return f"is of a {kind}"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            if module.padding_idx is not None:
                return f"is of a {kind} whose padding row must stay as it is"
            if module.max_norm is not None or module.sparse:
                return f"is of a {kind} that changes its weight itself, or has sparse gradients"
    if parameter.dtype != torch.float32:
        return f"is of type {str(parameter.dtype).removeprefix('torch.')}, not float32"
    return None
