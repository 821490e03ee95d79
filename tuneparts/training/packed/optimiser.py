"""One optimiser for all lanes, with a learning rate and a weight decay for each.

torch's optimisers have one rate for a tensor. Both SGD and Adam multiply their step by the rate at
the very end, so torch's own optimiser makes the step at rate 1 from zero, and each lane adds it
times its rate.

Legend: P lanes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.training.optimisers import OptimiserConfig
from tuneparts.training.packed.stack import Stack

_STATE = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}


class LaneOptimiser:
    """Moves the weights of all lanes.

    The state of each lane's own optimiser becomes a view of the state here, so that it is saved and
    loaded as if the lane had trained alone.

    Args:
        optimisers: of the lanes, as `OptimiserConfig.build` made them.
        configs: of the lanes; kind, momentum, Nesterov and the factor of scalars are the same.
        stack: the weights of all lanes.
    """

    def __init__(
        self,
        optimisers: Sequence[torch.optim.Optimizer],
        configs: Sequence[OptimiserConfig],
        stack: Stack,
    ) -> None:
        self._optimisers = optimisers
        self._configs = configs
        groups = optimisers[0].param_groups
        own = [(parameter, group) for group in groups for parameter in group["params"]]
        self.weights: list[Tensor] = [stack.of(parameter) for parameter, _ in own]
        """What it moves, in the order of the gradients that `step` takes."""
        self._factors: list[float] = [group["lr_factor"] for _, group in own]
        self._steps = [nn.Parameter(torch.zeros_like(weight)) for weight in self.weights]
        self._torch = self._at_rate_one(configs[0])
        decays = self.weights[0].new_tensor([config.weight_decay for config in configs])
        self._decays_P = decays if decays.any() else None
        self._share_state(_STATE[configs[0].kind])

    def begin(self, lanes: Sequence[int]) -> None:
        """Go on from where these lanes are; all have made as many steps."""
        for number, state in enumerate(self._states()):
            own = self._state_of(lanes[0], number)
            if "step" in own:
                state["step"].fill_(own["step"])

    def step(self, gradients: Sequence[Tensor | None], progress: float) -> None:
        """Move all lanes.

        Args:
            gradients: of `weights`; None leaves a weight as it is.
            progress: fraction of the budget that is spent, which sets the rates.
        """
        rates = [config.lr_at(progress) for config in self._configs]
        rates_P = torch.tensor(rates, dtype=self.weights[0].dtype).to(self.weights[0].device)
        each = zip(self.weights, gradients, self._steps, strict=True)
        with torch.no_grad():
            for weight, gradient, step in each:
                step.zero_()
                # torch's fused kernels read gradients in memory order, whatever their strides.
                step.grad = None if gradient is None else gradient.contiguous()
                if step.grad is not None and self._decays_P is not None:
                    step.grad.addcmul_(weight, _by_lane(self._decays_P, weight))
            self._torch.step()
            for weight, step, factor in zip(self.weights, self._steps, self._factors, strict=True):
                weight.addcmul_(step, _by_lane(rates_P, weight), value=factor)

    def end(self, lanes: Sequence[int]) -> None:
        """Count the steps for these lanes' own optimisers."""
        for number, state in enumerate(self._states()):
            for lane in lanes:
                own = self._state_of(lane, number)
                if "step" in own:
                    own["step"].fill_(float(state["step"]))

    def tensors(self) -> list[Tensor]:
        """All moments (P, ...)."""
        return [
            value
            for state in self._states()
            for value in state.values()
            if isinstance(value, Tensor) and value.dim() > 0
        ]

    def _at_rate_one(self, config: OptimiserConfig) -> torch.optim.Optimizer:
        is_fused = self.weights[0].device.type in ("cpu", "cuda")
        if config.kind == "adam":
            return torch.optim.Adam(self._steps, lr=1.0, fused=is_fused or None)
        return torch.optim.SGD(
            self._steps,
            lr=1.0,
            momentum=config.momentum,
            nesterov=config.nesterov,
            fused=is_fused or None,
        )

    def _share_state(self, names: Sequence[str]) -> None:
        """Join the lanes' moments here, and leave them views; moments that are missing are zero."""
        has_moments = self._configs[0].kind == "adam" or self._configs[0].momentum > 0
        for number, step in enumerate(self._steps):
            state: dict[str, Any] = {}
            for name in names if has_moments else ():
                own = [self._state_of(lane, number).get(name) for lane in self._lanes]
                given = [torch.zeros_like(step[0]) if one is None else one for one in own]
                state[name] = torch.stack([one.detach() for one in given])
                for lane in self._lanes:
                    self._state_of(lane, number)[name] = state[name][lane]
            if self._configs[0].kind == "adam":
                state["step"] = torch.zeros((), dtype=torch.float32, device=step.device)
                for lane in self._lanes:
                    self._state_of(lane, number).setdefault("step", torch.tensor(0.0))
            self._torch.state[step] = state

    @property
    def _lanes(self) -> range:
        return range(len(self._optimisers))

    def _states(self) -> list[dict[str, Any]]:
        return [self._torch.state[step] for step in self._steps]

    def _state_of(self, lane: int, number: int) -> dict[str, Any]:
        """The state that a lane's own optimiser has of its weight of this number."""
        optimiser = self._optimisers[lane]
        own = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        found: dict[str, Any] = optimiser.state[own[number]]
        return found


def _by_lane(values_P: Tensor, weight: Tensor) -> Tensor:
    return values_P.view(-1, *[1] * (weight.dim() - 1))
