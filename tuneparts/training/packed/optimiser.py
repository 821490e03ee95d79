"""The optimisers of all lanes, stepped one after another without what a step costs in Python.

Each lane is moved by torch's own update rule, at its own learning rate and weight decay, and keeps
the moments of its own optimiser. Only the gradients come from one tensor for all lanes.

Legend: P lanes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from tuneparts.training.optimisers import OptimiserConfig
from tuneparts.training.packed.stack import Stack
from tuneparts.training.state import laid_out


class LaneOptimiser:
    """Moves the weights of lanes.

    Args:
        optimisers: of the lanes, by number, as `OptimiserConfig.build` made them. Moments that
            they do not have yet are made here.
        configs: of these lanes.
        stack: the weights of all lanes.
    """

    def __init__(
        self,
        optimisers: Mapping[int, torch.optim.Optimizer],
        configs: Mapping[int, OptimiserConfig],
        stack: Stack,
    ) -> None:
        self._configs = configs
        first = next(iter(optimisers.values()))
        self.weights: list[Tensor] = [
            stack.of(parameter) for group in first.param_groups for parameter in group["params"]
        ]
        """What it moves (P, ...), in the order of the gradients that `step` takes."""
        self._groups = {
            lane: [_Group(group, optimiser, configs[lane]) for group in optimiser.param_groups]
            for lane, optimiser in optimisers.items()
        }

    def moves(self, lanes: Sequence[int]) -> bool:
        """Whether it knows the optimisers of all these lanes."""
        return set(lanes) <= set(self._groups)

    def step(
        self, gradients: Sequence[Tensor | None], progress: float, lanes: Sequence[int]
    ) -> None:
        """Move some lanes.

        Args:
            gradients: of `weights`; None leaves a weight as it is.
            progress: fraction of the budget that is spent, which sets the rates.
            lanes: which.
        """
        # torch's fused kernels read gradients in memory order, whatever their strides.
        each = [None if one is None else one.contiguous().unbind() for one in gradients]
        for lane in lanes:
            own = iter([None if one is None else one[lane] for one in each])
            rate = self._configs[lane].lr_at(progress)
            for group in self._groups[lane]:
                group.step(own, rate)


class _Group:
    """A parameter group of a lane, with all that torch's function of its step takes."""

    def __init__(
        self, group: dict[str, Any], optimiser: torch.optim.Optimizer, config: OptimiserConfig
    ) -> None:
        self._group = group
        self._is_adam = config.kind == "adam"
        self._weights: list[Tensor] = [one.detach() for one in group["params"]]
        self._is_fused = self._weights[0].device.type in ("cpu", "cuda")
        self._has_moments = self._is_adam or config.momentum > 0
        self._states = [self._state(optimiser, one) for one in group["params"]]

    def _state(self, optimiser: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Any]:
        """The state of a weight in its optimiser, made where it is missing, on its device."""
        if not parameter.requires_grad:
            return {}  # it never moves
        state: dict[str, Any] = optimiser.state[parameter]
        names = ("exp_avg", "exp_avg_sq") if self._is_adam else ("momentum_buffer",)
        for name in names if self._has_moments else ():
            own = state.get(name)
            state[name] = torch.zeros_like(parameter) if own is None else laid_out(own, parameter)
        if self._is_adam:
            place = parameter.device if self._is_fused else torch.device("cpu")
            count = state.get("step", torch.zeros(()))
            state["step"] = torch.as_tensor(count, dtype=torch.float32).to(place)
        return state

    def step(self, gradients: Any, rate: float) -> None:
        """Move the weights by the next gradients, at a rate of the whole optimiser."""
        found = zip(self._weights, gradients, self._states, strict=False)
        moved = [(weight, one, state) for weight, one, state in found if one is not None]
        if not moved:
            return
        weights, own, states = map(list, zip(*moved, strict=True))
        lr = rate * self._group["lr_factor"]
        with torch.no_grad():
            if self._is_adam:
                self._adam(weights, own, states, lr)
            else:
                self._sgd(weights, own, states, lr)

    def _adam(
        self, weights: list[Tensor], own: list[Tensor], states: list[dict[str, Any]], lr: float
    ) -> None:
        group = self._group
        counts: list[Tensor] = [state["step"] for state in states]
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        rule = {
            "amsgrad": False,
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "lr": lr,
            "weight_decay": group["weight_decay"],
            "eps": group["eps"],
            "maximize": False,
        }
        if self._is_fused:
            # All that torch's function does here, without the checks that take as long as a kernel.
            torch._foreach_add_(counts, 1)
            torch._fused_adam_(
                weights, own, first, second, [], counts, grad_scale=None, found_inf=None, **rule
            )
        else:
            rule |= {"fused": False, "foreach": False}
            adam(weights, own, first, second, [], counts, **rule)

    def _sgd(
        self, weights: list[Tensor], own: list[Tensor], states: list[dict[str, Any]], lr: float
    ) -> None:
        group = self._group
        sgd(
            weights,
            own,
            [state["momentum_buffer"] if self._has_moments else None for state in states],
            fused=self._is_fused,
            foreach=False,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=lr,
            dampening=0.0,
            nesterov=group["nesterov"],
            maximize=False,
        )
