"""Kronecker factors of the Gauss-Newton curvature, differentiable by the augmentation.

For a layer with inputs a and outputs s the curvature of its weights is approximated by A (x) B,
with A the mean of a a^T and B the sum of J^T (diag(p) - p p^T) J, J the Jacobian of the logits by s
(Martens & Grosse 2015; Grosse & Martens 2016 for convolutions, whose positions count as examples).
Of the S augmented samples of an example inputs are averaged and Jacobians summed, because the
prediction is the mean over them (Immer et al. 2022). A bias has B alone; single scales and shifts,
as FixUp nets and norms have them, an exact diagonal. No Jacobian by the weights is ever made: a
batch costs K backward passes to the outputs of the layers, whatever the number of weights.

Shapes: B examples, S samples of each, N = B * S, K classes, T positions of a layer, I inputs and O
outputs of a layer.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.curvature import Curvature, Predict
from tuneparts.models.layers import Bias, ScalarMultiplier
from tuneparts.models.reweighted import reweighted, tied_names

FACTORED = (nn.Linear, nn.Conv2d)
SCALED = (Bias, ScalarMultiplier, nn.GroupNorm, nn.LayerNorm)


def check_layers(net: nn.Module) -> None:
    """Refuse a net with weights whose factors are not known, by the name of the layer."""
    for name, module in net.named_modules():
        has_own = any(p.requires_grad for p in module.parameters(recurse=False))
        is_grouped = isinstance(module, nn.Conv2d) and module.groups > 1
        if has_own and (is_grouped or not isinstance(module, FACTORED + SCALED)):
            known = ", ".join(cls.__name__ for cls in FACTORED + SCALED)
            what = "grouped Conv2d" if is_grouped else type(module).__name__
            raise ConfigError(
                f"Kronecker factors are known for {known}, but `{name}` is a {what}. "
                "Use `curvature='diagonal'`, or another net."
            )
    if tied := tied_names(net):
        raise ConfigError(
            "Kronecker factors are those of a layer that has its weights for itself, but "
            f"`{next(iter(tied))}` is shared. Use `curvature='diagonal'`."
        )


def check_factors(net: nn.Module, *, max_gb: float) -> None:
    """Refuse factors that would not fit, before anything is spent on them.

    Args:
        net: whose layers they are of.
        max_gb: the limit.
    """
    sides = [
        side
        for module in net.modules()
        if isinstance(module, FACTORED)
        for side in (module.weight[0].numel(), len(module.weight))
    ]
    # The running mean, that of the batch, its eigenvectors, and what the decomposition needs.
    needed = 4 * 6 * sum(side**2 for side in sides) / 1e9
    if needed > max_gb:
        raise ConfigError(
            f"the Kronecker factors must fit in `max_gb` = {max_gb:g} GB, but layers with up to "
            f"{max(sides)} inputs or outputs need about {needed:.1f} GB. Use a smaller net, or "
            "raise `max_gb`."
        )


def kronecker_ggn(
    net: nn.Module, predict: Predict, num_examples: int, *, differentiable: bool = False
) -> tuple[Tensor, dict[str, Curvature]]:
    """Logits of a batch and the factors of its curvature, summed over the batch.

    Args:
        net: without statistics over the batch, see `check_layers`; read, never moved.
        predict: from a function of inputs (N, ...) to logits (N, K), to averaged logits (B, K).
        num_examples: B.
        differentiable: whether the result carries a graph to what `predict` depends on.

    Returns:
        logits_BK and the curvature by parameter name: (A, B) of weights, (B,) of biases, and the
        diagonal, in the shape of the parameter, of scales and shifts.
    """
    watched, watch = _watched(net, num_examples)
    with torch.enable_grad():
        logits_BK = predict(watched)
    p_BK = logits_BK.softmax(dim=1) if differentiable else logits_BK.detach().softmax(dim=1)
    # R R^T = diag(p) - p p^T, so that column k of R takes one backward pass.
    root_BK = p_BK.sqrt()
    R_BKK = torch.diag_embed(root_BK) - p_BK[:, :, None] * root_BK[:, None, :]
    outputs = list(watch.outputs.values())
    columns = [
        torch.autograd.grad(
            logits_BK,
            [*outputs, *watch.copies.values()],
            R_BKK[:, :, k],
            retain_graph=True,
            create_graph=differentiable,
        )
        for k in range(logits_BK.shape[1])
    ]
    found: dict[str, Curvature] = {}
    for i, name in enumerate(watch.outputs):
        layer = net.get_submodule(name)
        B_OO = _outer(layer, [column[i] for column in columns], num_examples)
        if layer.weight.requires_grad:
            x = watch.inputs[name] if differentiable else watch.inputs[name].detach()
            found[f"{name}.weight"] = _inner(layer, x, num_examples), B_OO
        if layer.bias is not None and layer.bias.requires_grad:
            found[f"{name}.bias"] = (B_OO,)
    for i, name in enumerate(watch.copies, start=len(outputs)):
        shape = net.get_parameter(name).shape
        squares = torch.stack([column[i].square().sum(0) for column in columns])
        found[name] = squares.sum(0).view(shape)
    if not differentiable:
        logits_BK = logits_BK.detach()
    return logits_BK, {n: found[n] for n, p in net.named_parameters() if p.requires_grad}


class _Watch:
    """What the hooks of one forward pass remember, by layer or parameter name."""

    def __init__(self) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.copies: dict[str, Tensor] = {}
        """Scales and shifts, one for each example."""


def _watched(net: nn.Module, num_examples: int) -> tuple[nn.Module, _Watch]:
    """The net at constant weights, with hooks that remember what its layers see and give."""
    frozen = {name: p.detach() for name, p in net.named_parameters()}
    copy, watch = reweighted(net, frozen), _Watch()
    for name, module in copy.named_modules():
        original = net.get_submodule(name)
        if not any(p.requires_grad for p in original.parameters(recurse=False)):
            continue
        hook: Callable[..., Tensor]
        if isinstance(module, FACTORED):
            hook = partial(_remember, watch=watch, name=name)
        else:
            hook = partial(_rescale, watch=watch, name=name, num_examples=num_examples)
        # The copy shares its hooks with the net, which is left alone.
        module._forward_hooks = OrderedDict(module._forward_hooks)
        module.register_forward_hook(hook)
    return copy, watch


def _remember(
    _: nn.Module, given: tuple[Tensor, ...], output: Tensor, *, watch: _Watch, name: str
) -> Tensor:
    if name in watch.outputs:
        raise ConfigError(
            "Kronecker factors are those of a layer that is called once, but "
            f"`{name}` is called again. Use `curvature='diagonal'`."
        )
    watch.inputs[name] = given[0]
    watch.outputs[name] = output if output.requires_grad else output.requires_grad_()
    return output.clone()  # what follows may change it in place


def _rescale(
    module: nn.Module,
    given: tuple[Tensor, ...],
    _: Tensor,
    *,
    watch: _Watch,
    name: str,
    num_examples: int,
) -> Tensor:
    """The output of a layer of scales or shifts, with a copy of them for each example."""
    x = given[0]
    own = {}
    for key, parameter in module._parameters.items():
        if parameter is None:
            continue
        path = f"{name}.{key}" if name else key
        flat = parameter.detach().reshape(1, -1)
        watch.copies[path] = flat.expand(num_examples, -1).clone().requires_grad_()
        own[key] = watch.copies[path].repeat_interleave(len(x) // num_examples, dim=0)
    if isinstance(module, Bias):
        return x + own["bias"].view(-1, *[1] * (x.dim() - 1))
    if isinstance(module, ScalarMultiplier):
        return x * own["scale"].view(-1, *[1] * (x.dim() - 1))
    if isinstance(module, nn.GroupNorm):
        y = F.group_norm(x, module.num_groups, eps=module.eps)
        shape = [module.num_channels, *[1] * (x.dim() - 2)]
    else:
        assert isinstance(module, nn.LayerNorm)
        y = F.layer_norm(x, module.normalized_shape, eps=module.eps)
        kept = list(module.normalized_shape)
        shape = [*[1] * (x.dim() - 1 - len(kept)), *kept]
    if "weight" in own:
        y = y * own["weight"].view(-1, *shape)
    return y + own["bias"].view(-1, *shape) if "bias" in own else y


def _inner(layer: nn.Module, x: Tensor, num_examples: int) -> Tensor:
    """A: the mean of a a^T over examples and positions."""
    x = x.reshape(num_examples, -1, *x.shape[1:]).mean(dim=1)
    if isinstance(layer, nn.Conv2d):
        x = _padded(layer, x)
        a_BIT = F.unfold(x, layer.kernel_size, dilation=layer.dilation, stride=layer.stride)
        a_RI = a_BIT.transpose(1, 2).flatten(0, 1)
    else:
        a_RI = x.reshape(-1, x.shape[-1])
    return a_RI.T @ a_RI / len(a_RI)


def _padded(layer: nn.Conv2d, x: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(x, layer._reversed_padding_repeated_twice, mode=mode)


def _outer(layer: nn.Module, grads: list[Tensor], num_examples: int) -> Tensor:
    """B: the sum of g g^T over examples, positions and columns of the likelihood's curvature."""
    # Samples first: what is stacked is then S times smaller.
    g = torch.stack([g.reshape(num_examples, -1, *g.shape[1:]).sum(dim=1) for g in grads])
    g_RO = g.movedim(2, -1).flatten(0, -2) if isinstance(layer, nn.Conv2d) else g.flatten(0, -2)
    return g_RO.T @ g_RO
