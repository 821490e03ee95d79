"""Whether a method can learn from a task: refused by name in the driver, before anything runs.

Legend: B examples, K outputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from tuneparts.core.errors import ConfigError
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Task
from tuneparts.hypers import FixedConfig, Hyper, HypersConfig, Shapes
from tuneparts.hypers.config import check_images
from tuneparts.hypers.hyper import Each, Place
from tuneparts.models import NETS, nets_in
from tuneparts.models.survey import PROBE


def refuse_target(config: BaseModel, task: Task, reason: str) -> None:
    """Refuse every target but classes, for a reason of the method or of a part of it."""
    if not isinstance(task.target, Classes):
        name = getattr(config, "method", type(config).__name__)
        raise ConfigError(
            f"`{name}` learns classes only, because {reason}, but the target is "
            f"`{task.target.kind}`. Use another method, or the target `classes`."
        )


def check_hypers(hypers: HypersConfig, task: Task, *, learnable: bool) -> None:
    """Refuse hypers that mean nothing for a task, and call those of one's own on two examples."""
    present = hypers.acting_on("inputs")
    if task.has_tokens and present:
        raise ConfigError(
            f"`hypers` has {', '.join(present)}, which change real numbers, but inputs are whole "
            "numbers. Remove them, or make the inputs float32."
        )
    target = task.target
    if hypers.averaging == "prob" and not isinstance(target, Classes):
        raise ConfigError(
            "`averaging` by `prob` averages probabilities of classes, but the target is "
            f"`{target.kind}`. Use `logits`, which averages outputs."
        )
    if hypers.temperature is not None and not target.counts_classes:
        raise ConfigError(
            "`temperature` divides the logits of classes, but the target is "
            f"`{target.kind}`. Remove it."
        )
    for name, hyper in hypers.own.items():
        _try_hyper(name, hyper, task, learnable=learnable and name not in hypers.frozen)


def _try_hyper(name: str, hyper: Hyper, task: Task, *, learnable: bool) -> None:
    place = hyper.place()
    check_images(name, hyper, task.in_shape)
    if hyper.needs_classes and not task.num_classes:
        raise ConfigError(
            f"`{name}` acts on the logits of classes, but the target of this data is "
            f"`{task.target.kind}`. Leave `{name}` out."
        )
    num_slots, num_tensors = _counted(hyper, "slot", 1), _counted(hyper, "tensor", 2)
    shapes = Shapes(task.in_shape, num_slots, task.num_outputs, num_tensors)
    try:
        part = hyper.part(shapes, name=name, learnable=learnable)
        given = _call(place, shapes, task)
        found = part(*given)
    except ConfigError:
        raise
    except Exception as error:  # whatever somebody else's hyper raises
        raise ConfigError(
            f"the hyper `{name}` acts on {place}, but {type(hyper).__name__} raised "
            f"{type(error).__name__} for inputs of shape {task.in_shape} and "
            f"{task.num_outputs} outputs: {error}"
        ) from error
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    wanted = () if place == "weights" else tuple(given[0].shape)
    if shape != wanted:
        raise ConfigError(
            f"a hyper that acts on {place} returns a tensor of shape {wanted} here, but "
            f"`{name}` returned {shape}."
        )


def _counted(hyper: Hyper, each: Each, default: int) -> int:
    """As many as it has numbers for; that the net has so many is seen with the net."""
    values = (getattr(hyper, name) for name, n in hyper.numbers().items() if n.each == each)
    return max((len(value) for value in values if isinstance(value, tuple)), default=default)


def _call(place: Place, shapes: Shapes, task: Task) -> tuple[Any, ...]:
    """What a hyper is called with for two examples; it returns the like of the first of these."""
    generator, outputs_BK = torch.Generator().manual_seed(0), torch.zeros(2, task.num_outputs)
    calls: dict[Place, tuple[Any, ...]] = {
        "inputs": (torch.zeros(2, *shapes.in_shape), generator),
        "activations": (torch.zeros(2, 3), 0, generator),
        "outputs": (outputs_BK,),
        "loss": (torch.zeros(2), outputs_BK, torch.as_tensor(task.train.labels[:2])),
        "weights": ([torch.zeros(2, 3), *[torch.zeros(3)] * (shapes.num_tensors - 1)],),
    }
    return calls[place]


def check_inputs(config: BaseModel, task: Task) -> None:
    """Refuse whole numbers as inputs of a net, or of an augmentation, that takes real ones."""
    if not task.has_tokens:
        return
    for net in nets_in(config):
        if net.name in NETS:
            raise ConfigError(
                f"`{net.name}` takes images or real numbers, but inputs are whole numbers "
                f"{task.in_shape}. Use a net of your own, or make the inputs float32."
            )
    if getattr(config, "augmentation", FixedConfig()) != FixedConfig():
        raise ConfigError(
            "`augmentation` acts on images, but inputs are whole numbers. Leave it out."
        )


def check_target(task: Task) -> None:
    """Try a target of somebody else's on a few labels; ours are tested elsewhere."""
    target = task.target
    if target.kind in Target.registry.known and target.kind != "own_loss":
        return
    name = f"`{getattr(target, 'function', target.kind)}`"
    y = torch.as_tensor(task.train.labels[:PROBE].copy())
    outputs_BK = torch.zeros(len(y), task.num_outputs, requires_grad=True)

    def tried(function: Callable[..., Any], outputs_BK: Tensor) -> Any:
        try:
            return function(outputs_BK, y)
        except Exception as error:  # whatever somebody else's function raises
            raise ConfigError(
                f"a target compares outputs {tuple(outputs_BK.shape)} with labels "
                f"{tuple(y.shape)}, but {name} raised {type(error).__name__}: {error}"
            ) from error

    losses = tried(target.losses, outputs_BK)
    if not isinstance(losses, Tensor) or losses.shape != y.shape[:1] or not losses.requires_grad:
        raise ConfigError(
            f"a target has one loss per example, here ({len(y)},), that depends on the outputs, "
            f"but {name} gave {losses!r:.100}. Neither average over examples nor detach."
        )
    scores = tried(target.scores, outputs_BK.detach())
    declared = [metric.name for metric in target.metrics]
    is_plain = isinstance(scores, dict) and all(isinstance(one, float) for one in scores.values())
    if not is_plain or not declared or not set(scores) <= set(declared):
        raise ConfigError(
            "the scores of a target are numbers by the names of its `metrics`, at least one, but "
            f"{name} has the metrics {declared} and gave {scores!r:.200}."
        )
