"""Every hyper is tried once in the driver, so that a wrong one is refused before anything runs.

Legend: B examples, K outputs.
"""

from typing import Any

import torch

from tuneparts.augment.hyper import Each, Hyper, Place, Shapes
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.training.hyper.config import HypersConfig, check_images

_EXAMPLES = 2


def try_hypers(config: HypersConfig, task: Task, *, learnable: bool) -> None:
    """Build every hyper and call those of one's own on two examples of zeros.

    Args:
        config: The hypers of a method.
        task: The data.
        learnable: Whether the method learns those that are not frozen.

    Raises:
        ConfigError: A hyper fails, starts where it cannot be learnt, or gives a wrong shape.
    """
    for name, hyper in config.parts.items():
        place = hyper.place()
        check_images(name, hyper, task.in_shape)
        if hyper.needs_classes and not task.num_classes:
            raise ConfigError(
                f"`{name}` acts on the logits of classes, but the target of this data is "
                f"`{task.target.kind}`. Leave `{name}` out."
            )
        num_tensors = _counted(hyper, "tensor", default=2)
        shapes = Shapes(
            task.in_shape, _counted(hyper, "slot", default=1), task.num_outputs, num_tensors
        )
        try:
            part = hyper.part(shapes, name=name, learnable=learnable and name not in config.frozen)
            if name not in config.own:
                continue
            found = part(*_given(place, shapes, task))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the hyper `{name}` acts on {place}, but {type(hyper).__name__} raised "
                f"{type(error).__name__} for inputs of shape {task.in_shape} and "
                f"{task.num_outputs} outputs: {error}"
            ) from error
        _check(found, place, shapes, name)


def _counted(hyper: Hyper, each: Each, *, default: int) -> int:
    """As many as it has numbers for; that the net has so many is seen with the net."""
    tuples = [getattr(hyper, field) for field, n in hyper.numbers().items() if n.each == each]
    return max((len(one) for one in tuples if isinstance(one, tuple)), default=default)


def _given(place: Place, shapes: Shapes, task: Task) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    outputs_BK = torch.zeros(_EXAMPLES, shapes.num_outputs or 0)
    calls: dict[Place, tuple[Any, ...]] = {
        "inputs": (torch.zeros(_EXAMPLES, *shapes.in_shape), generator),
        "activations": (torch.zeros(_EXAMPLES, 3), 0, generator),
        "outputs": (outputs_BK,),
        "loss": (
            torch.zeros(_EXAMPLES),
            outputs_BK,
            torch.as_tensor(task.train.labels[:_EXAMPLES]),
        ),
        "weights": ([torch.zeros(2, 3), *[torch.zeros(3)] * (shapes.num_tensors - 1)],),
    }
    return calls[place]


def _check(found: Any, place: Place, shapes: Shapes, name: str) -> None:
    wanted = {
        "inputs": (_EXAMPLES, *shapes.in_shape),
        "activations": (_EXAMPLES, 3),
        "outputs": (_EXAMPLES, shapes.num_outputs),
        "loss": (_EXAMPLES,),
        "weights": (),
    }[place]
    given = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    if given != wanted:
        raise ConfigError(
            f"a hyper that acts on {place} returns a tensor of shape {wanted} here, but `{name}` "
            f"returned {given}."
        )
