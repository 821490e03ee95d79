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
from tuneparts.hypers import Augmentation, Hyper, Hypers, Shapes
from tuneparts.hypers.config import check_images
from tuneparts.hypers.hyper import Each, Place
from tuneparts.nets import NETS, nets_in
from tuneparts.nets.survey import PROBE


def refuse_target(config: BaseModel, task: Task, reason: str) -> None:
    """Refuse every target but classes, for a reason of the method or of a part of it."""
    if not isinstance(task.target, Classes):
        name = getattr(config, "method", type(config).__name__)
        raise ConfigError(
            f"`{name}` learns classes only, because {reason}, but the target is "
            f"`{task.target.kind}`. Use another method."
        )


def _check_hypers(hypers: Hypers, task: Task, *, learnable: bool) -> None:
    """Refuse hyperparameters that mean nothing for a task; call your own on two examples."""
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
            f"`temperature` divides the logits of classes, but the target is `{target.kind}`."
        )
    for name, hyper in hypers.own.items():
        _try_hyper(name, hyper, task, learnable=learnable and name not in hypers.frozen)


def _try_hyper(name: str, hyper: Hyper, task: Task, *, learnable: bool) -> None:
    place = hyper.place()
    check_images(name, hyper, task.in_shape)
    if hyper.needs_classes and not task.num_classes:
        raise ConfigError(
            f"`{name}` acts on the logits of classes, but the target is `{task.target.kind}`."
        )

    def counted(each: Each, default: int) -> int:
        """As many as it has numbers for; that the net has so many is seen with the net."""
        values = (getattr(hyper, name) for name, n in hyper.numbers().items() if n.each == each)
        return max((len(value) for value in values if isinstance(value, tuple)), default=default)

    num_tensors, generator = counted("tensor", 2), torch.Generator().manual_seed(0)
    shapes = Shapes(task.in_shape, counted("slot", 1), task.num_outputs, num_tensors)
    outputs_BK = torch.zeros(2, task.num_outputs)
    calls: dict[Place, tuple[Any, ...]] = {
        "inputs": (torch.zeros(2, *task.in_shape), generator),
        "activations": (torch.zeros(2, 3), 0, generator),
        "outputs": (outputs_BK,),
        "loss": (torch.zeros(2), outputs_BK, torch.as_tensor(task.train.labels[:2])),
        "weights": ([torch.zeros(2, 3), *[torch.zeros(3)] * (num_tensors - 1)],),
    }
    try:
        found = hyper.part(shapes, name=name, learnable=learnable)(*calls[place])
    except ConfigError:
        raise
    except Exception as error:  # whatever somebody else's hyperparameter raises
        raise ConfigError(
            f"`{name}` acts on {place}, but {type(hyper).__name__} raised {type(error).__name__} "
            f"for inputs of shape {task.in_shape} and {task.num_outputs} outputs: {error}"
        ) from error
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    wanted = () if place == "weights" else tuple(calls[place][0].shape)
    if shape != wanted:
        raise ConfigError(
            f"what acts on {place} returns shape {wanted} here, but `{name}` returned {shape}."
        )


def _check_data(config: BaseModel, task: Task) -> None:
    """Refuse inputs that a net or the augmentation cannot take, and a target that does not work."""
    for net in nets_in(config) if task.has_tokens else ():
        if net.name in NETS:
            raise ConfigError(
                f"`{net.name}` takes images or real numbers, but inputs are whole numbers "
                f"{task.in_shape}. Use a net of your own, or make the inputs float32."
            )
    are_images = len(task.in_shape) == 3 and not task.has_tokens
    if not are_images and getattr(config, "augmentation", Augmentation()) != Augmentation():
        kind = "whole numbers " if task.has_tokens else ""
        raise ConfigError(f"`augmentation` acts on images, but inputs are {kind}{task.in_shape}.")
    # A target of somebody else's is tried on a few labels; ours are tested elsewhere.
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
            f"but {name} gave {losses!r:.100}."
        )
    scores = tried(target.scores, outputs_BK.detach())
    declared = [metric.name for metric in target.metrics]
    is_plain = isinstance(scores, dict) and all(isinstance(one, float) for one in scores.values())
    if not is_plain or not declared or not set(scores) <= set(declared):
        raise ConfigError(
            "the scores of a target are numbers by the names of its `metrics`, at least one, but "
            f"{name} has the metrics {declared} and gave {scores!r:.200}."
        )
