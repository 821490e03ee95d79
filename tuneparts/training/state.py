"""What a run saves, named once per class.

An attribute that draws random numbers or keeps moments, but is not named, is refused when the state
is first saved.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tuneparts.core.errors import CheckpointError


class Stateful:
    """An object that saves and restores those of its attributes that its class names.

    `parts` are attributes that are restored in place: modules, optimisers, torch and NumPy
    generators, anything else with `state_dict` and `load_state_dict`, dicts of them, or None.
    `values` are attributes that are replaced: numbers, strings, tensors, flat dataclasses, None,
    and lists, tuples or dicts of them. A subclass names its own; those of its base come first.
    `state_dict` holds each under its name without a leading underscore.
    """

    _state_parts: ClassVar[tuple[str, ...]] = ()
    _state_values: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls, *, parts: tuple[str, ...] = (), values: tuple[str, ...] = (), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls._state_parts = (*cls._state_parts, *parts)
        cls._state_values = (*cls._state_values, *values)

    @property
    def state_device(self) -> torch.device:
        """Where the tensors of restored values go."""
        return torch.device("cpu")

    def state_dict(self) -> dict[str, Any]:
        """All named parts and values; tensors share memory with this object."""
        for name, value in vars(self).items():
            if name not in self._state_parts and _is_part(value):
                raise TypeError(
                    f"`{name}` ({type(value).__name__}) of {type(self).__name__} draws, or keeps "
                    "moments, and so is part of the state. Name it in the `parts` of the class."
                )
        parts = {_key(name): _part_state(getattr(self, name)) for name in self._state_parts}
        found = {_key(name): getattr(self, name) for name in self._state_values}
        values = {
            key: copied(asdict(one) if _is_record(one) else one, Tensor.detach)
            for key, one in found.items()
        }
        return {**values, **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from what `state_dict` returned; keeps no reference into it."""
        try:
            self.restore(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                "a state comes from the same kind of learner: "
                f"{type(self).__name__} cannot take this one: {error}"
            ) from error

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load every part and value; a class whose parts depend on the stage makes them before."""
        for name in self._state_parts:
            _load(getattr(self, name), state[_key(name)])
        values = {name: self._value(name, state[_key(name)]) for name in self._state_values}
        for name, value in values.items():
            setattr(self, name, value)

    def _value(self, name: str, saved: Any) -> Any:
        own = getattr(self, name)
        if isinstance(own, bool | int | float):
            return type(own)(saved)
        value = copied(saved, lambda one: one.detach().to(self.state_device, copy=True))
        return type(own)(**value) if _is_record(own) else value


def _key(name: str) -> str:
    return name.lstrip("_")


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _is_part(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_is_part, value.values() if isinstance(value, dict) else value))
    if isinstance(value, torch.Generator | np.random.Generator):
        return True
    # Modules are not looked for: parts of a run hold references to the run's net.
    return hasattr(value, "load_state_dict") and not isinstance(value, nn.Module | type)


def _part_state(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _part_state(item) for key, item in part.items()}
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, np.random.Generator):
        return dict(part.bit_generator.state)
    if isinstance(part, torch.optim.Optimizer):
        # Learning rates and decay stay with the config: a state may be loaded under another one.
        return part.state_dict()["state"]
    return None if part is None else part.state_dict()


def _load(part: Any, state: Any) -> None:
    if (part is None) is not (state is None):
        raise ValueError("a part that is there in one of state and learner is missing in the other")
    if isinstance(part, dict):
        for key, item in part.items():
            _load(item, state[key])
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif isinstance(part, torch.optim.Optimizer):
        # `Optimizer.load_state_dict` keeps references to the tensors that it is given: without the
        # copy two learners that load one state would share their momentum.
        groups = part.state_dict()["param_groups"]
        part.load_state_dict({"state": copy.deepcopy(dict(state)), "param_groups": groups})
        _lay_out_moments(part)
    elif part is not None:
        part.load_state_dict(state)


def _lay_out_moments(optimiser: torch.optim.Optimizer) -> None:
    """Give moments the strides of parameters: fused kernels are silently wrong otherwise."""
    for parameter, moments in optimiser.state.items():
        for name, value in moments.items():
            is_moment = isinstance(value, Tensor) and value.shape == parameter.shape
            if is_moment and value.stride() != parameter.stride():
                moments[name] = torch.empty_like(parameter, requires_grad=False).copy_(value)


def copied(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The same containers anew, with the function applied to each tensor in them."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        result = copy.copy(value)  # keeps what torch attaches to the state of a module
        for key, item in value.items():
            result[key] = copied(item, function)
        return result
    if isinstance(value, list | tuple):
        return type(value)(copied(item, function) for item in value)
    return value
