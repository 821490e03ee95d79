"""Which layers of an unknown net make its outputs: its heads, seen by running it.

The layer that is called last need not be one: a gate may be computed after the classifier that it
scales, and a net may add up several heads. So one unit of a layer is moved at a time. A unit of a
head moves the output of its number alone, and no other layer sees it.

Shapes: N inputs of the probe, K outputs.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts import seeding
from tuneparts.errors import ConfigError
from tuneparts.models.survey import outputs

_NUM_BUMPED = 16
"""Units of a layer, about, that are moved."""
_NUM_INPUTS = 2
_Unitwise = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
"""Layers whose units are known: outputs, or channels."""


def head_layers(net: nn.Module, x: Tensor) -> tuple[str, ...]:
    """Names of the layers whose units are the outputs of a net, in the order of their calls.

    The net is run in evaluation and in training mode, under random weights and under its own. If
    no unit of a layer is an output, as before a softmax, the heads are the layers that change the
    outputs and feed no other layer; failing that, the layer that is called last.

    Args:
        net: from inputs (B, ...) to logits (B, K); it is not changed.
        x: a few inputs, on the net's device.

    Example:
        >>> class Gated(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        ...         self.gate = nn.Linear(4, 1)
        ...
        ...     def forward(self, x):
        ...         return self.head(self.hidden(x).relu()) * self.gate(x).sigmoid()
        >>> head_layers(Gated(), torch.zeros(2, 4))
        ('head',)
    """
    probes = [_Probe(net, x, is_drawn=is_drawn) for is_drawn in (True, False)]
    for looks_for in (_Probe.owners, _Probe.ends):
        for probe in probes:
            found = looks_for(probe)
            if found:
                return found
    return probes[-1].names[-1:]


def bumped_units(width: int) -> range:
    """The units of a layer to move: all of a narrow layer, and some of a wide one."""
    return range(width) if width <= _NUM_BUMPED else range(0, width, width // _NUM_BUMPED)


def bumped(out: Tensor, layer: nn.Module, unit: int) -> Tensor:
    """Copy what a layer returned, with one unit moved."""
    out = out.clone()
    axis = out.dim() - 1 if isinstance(layer, nn.Linear) else 1
    out.select(axis, unit).mul_(1.5).add_(0.5)
    return out


def is_own_output(change_NK: Tensor, unit: int) -> bool:
    """Whether moving a unit moved the output of its number, and all others by one amount.

    The amount is zero, or what a log-softmax subtracts. A single output has no others to tell.
    """
    if change_NK.shape[1] == 1:
        return False
    others = torch.cat([change_NK[:, :unit], change_NK[:, unit + 1 :]], dim=1)
    common = others.mean(1, keepdim=True)
    size = change_NK.abs().max()
    moved = (change_NK[:, unit] - common[:, 0]).abs().max()
    return bool(moved > 1e-6 * (1 + size)) and bool((others - common).abs().max() <= 1e-5 * size)


@dataclass
class _Pass:
    """What a pass showed."""

    inputs: dict[str, list[Tensor]] = field(default_factory=dict)
    """What each layer with weights was called with, first calls first."""
    outputs_NK: Tensor = field(default_factory=lambda: torch.empty(0, 0))

    def feeds(self, name: str, usual: "_Pass") -> bool:
        """Whether a layer other than the one that was moved saw something else than usual."""
        one, other = ({k: v for k, v in p.inputs.items() if k != name} for p in (self, usual))
        return one.keys() != other.keys() or not all(
            len(seen) == len(other[k]) and all(map(torch.equal, seen, other[k]))
            for k, seen in one.items()
        )


class _Probe:
    """Runs a copy of a net with single units moved.

    Args:
        net: it is not changed.
        x: a few inputs.
        is_drawn: whether weights and inputs are drawn, so that neither zeros nor dead units of
            the net that is given hide a path.
    """

    def __init__(self, net: nn.Module, x: Tensor, *, is_drawn: bool) -> None:
        self._net, self._x = deepcopy(net), x[:_NUM_INPUTS]
        if is_drawn:
            self._draw()
        self._layers = dict(self._net.named_modules())
        # Evaluation first: passes in training mode change running statistics.
        self._usual = {mode: run for mode in (False, True) if (run := self._run(training=mode))}

    @property
    def names(self) -> tuple[str, ...]:
        """Layers with known units that are called, first calls of evaluation first."""
        called = dict.fromkeys(name for run in self._usual.values() for name in run.inputs)
        return tuple(name for name in called if isinstance(self._layers[name], _Unitwise))

    def owners(self) -> tuple[str, ...]:
        """Layers whose units are outputs, each one output."""
        return tuple(
            name
            for name in self.names
            if any(self._is_owner(name, training=training) for training in self._usual)
        )

    def ends(self) -> tuple[str, ...]:
        """Layers that change the outputs and feed no other layer."""
        return tuple(
            name
            for name in self.names
            if any(self._is_end(name, training=training) for training in self._usual)
        )

    def _is_owner(self, name: str, *, training: bool) -> bool:
        usual = self._usual[training]
        width, num_outputs = _width(self._layers[name]), usual.outputs_NK.shape[1]
        if width != num_outputs or name not in usual.inputs:
            return False
        for unit in bumped_units(width):
            run = self._run((name, unit), training=training)
            if run is None or run.feeds(name, usual):
                return False
            change_NK = run.outputs_NK - usual.outputs_NK
            if not (is_own_output(change_NK, unit) or (num_outputs == 1 and change_NK.any())):
                return False
        return True

    def _is_end(self, name: str, *, training: bool) -> bool:
        usual = self._usual[training]
        if name not in usual.inputs:
            return False
        for unit in bumped_units(_width(self._layers[name])):
            run = self._run((name, unit), training=training)
            if run is None or run.feeds(name, usual):
                return False
            if not torch.equal(run.outputs_NK, usual.outputs_NK):
                return True
        return False

    @torch.no_grad()
    def _draw(self) -> None:
        """Give the copy positive weights and inputs of about one, whatever the depth."""
        generator = seeding.torch_generator(0, "heads")

        def positive(like: Tensor) -> Tensor:
            drawn = torch.rand(like.shape, generator=generator) + 0.5
            return drawn.to(like.device, like.dtype)

        for parameter in self._net.parameters():
            fan_in = max(1, parameter[0].numel()) if parameter.dim() > 1 else 1
            parameter.copy_(positive(parameter) / fan_in)
        if self._x.is_floating_point():
            self._x = positive(self._x)

    def _run(self, bump: tuple[str, int] | None = None, *, training: bool) -> _Pass | None:
        """Run the copy, with one unit of one layer moved; None if it cannot be run so."""
        seen = _Pass()

        def look(name: str) -> Any:
            def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
                given = [v.clone() for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
                seen.inputs.setdefault(name, []).extend(given)

            return hook

        handles = [
            layer.register_forward_pre_hook(look(name), with_kwargs=True)
            for name, layer in self._layers.items()
            if _has_weights(layer)
        ]
        if bump is not None:
            name, unit = bump
            layer = self._layers[name]
            handles.append(layer.register_forward_hook(lambda _, __, out: bumped(out, layer, unit)))
        try:
            seen.outputs_NK = outputs(self._net, self._x, training=training)
        except ConfigError:
            return None
        finally:
            for handle in handles:
                handle.remove()
        return seen


def _has_weights(layer: nn.Module) -> bool:
    own = layer.parameters(recurse=False)
    return isinstance(layer, _Unitwise) or any(p.dim() > 1 for p in own)


def _width(layer: nn.Module) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)  # type: ignore[arg-type]
