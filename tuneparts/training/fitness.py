"""Whether a method can learn from a task: refused by name in the driver, before anything runs."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from tuneparts.augment.fixed import FixedConfig
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models import NETS, NetConfig

_PROBE = 8


def refuse_target(config: BaseModel, task: Task, reason: str) -> None:
    """Refuse every target but classes.

    Args:
        config: of the method or the part of it that cannot have another target.
        task: what is to be learnt.
        reason: why it cannot.
    """
    if not isinstance(task.target, Classes):
        name = getattr(config, "method", type(config).__name__)
        raise ConfigError(
            f"`{name}` learns classes only, because {reason}, but the target is "
            f"`{task.target.kind}`. Use another method, or the target `classes`."
        )


def check_hypers(hypers: Any, task: Task) -> None:
    """Refuse hypers that mean nothing for the inputs or the target of a task.

    Args:
        hypers: a `HypersConfig`.
        task: what is to be learnt.
    """
    present = hypers.acting_on("inputs")
    if task.has_tokens and present:
        raise ConfigError(
            "hypers that change inputs need images or real numbers, but inputs are whole numbers "
            f"and `hypers` has {', '.join(present)}. Remove them, or make the inputs float32."
        )
    target = task.target
    if hypers.averaging == "prob" and not isinstance(target, Classes):
        raise ConfigError(
            "`averaging` of samples by `prob` averages probabilities of classes, but the target is "
            f"`{target.kind}`. Use `logits`, which averages outputs."
        )
    if getattr(hypers, "temperature", None) is not None and not target.counts_classes:
        raise ConfigError(
            "`temperature` divides the logits of classes, but the target is "
            f"`{target.kind}`. Remove it."
        )


def check_inputs(config: BaseModel, task: Task) -> None:
    """Refuse whole numbers as inputs of a net, or of an augmentation, that takes real ones."""
    if not task.has_tokens:
        return
    for net in _nets(config):
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
    if target.kind in Target.known and target.kind != "own_loss":
        return
    y = torch.as_tensor(task.train.labels[:_PROBE].copy())
    outputs = torch.zeros(len(y), task.num_outputs, requires_grad=True)
    _check_losses(target, _tried(target.losses, target, outputs, y), len(y))
    _check_scores(target, _tried(target.scores, target, outputs.detach(), y))


def _tried(function: Callable[..., Any], target: Target, outputs: Tensor, y: Tensor) -> Any:
    try:
        return function(outputs, y)
    except Exception as error:  # whatever somebody else's function raises
        raise ConfigError(
            f"a target compares outputs {tuple(outputs.shape)} with labels {tuple(y.shape)}, but "
            f"{_name(target)} raised {type(error).__name__}: {error}"
        ) from error


def _check_losses(target: Target, losses: Any, num: int) -> None:
    shape = tuple(losses.shape) if isinstance(losses, Tensor) else None
    if shape != (num,):
        found = f"a tensor {shape}" if shape is not None else f"{losses!r:.100}"
        raise ConfigError(
            f"a target has one loss per example, here ({num},), but {_name(target)} gave {found}. "
            "Do not average over examples."
        )
    if not losses.requires_grad:
        raise ConfigError(
            f"a loss is differentiated by the outputs, but that of {_name(target)} does not depend "
            "on them by torch's operations."
        )


def _check_scores(target: Target, scores: Any) -> None:
    declared = [metric.name for metric in target.metrics]
    is_plain = isinstance(scores, dict) and all(isinstance(one, float) for one in scores.values())
    if not is_plain or not declared or not set(scores) <= set(declared):
        raise ConfigError(
            "the scores of a target are numbers by the names of its `metrics`, at least one, but "
            f"{_name(target)} has the metrics {declared} and gave {scores!r:.200}."
        )


def _name(target: Target) -> str:
    return f"`{getattr(target, 'function', target.kind)}`"


def _nets(value: Any) -> Iterator[NetConfig]:
    if isinstance(value, NetConfig):
        yield value
    elif isinstance(value, BaseModel):
        yield from _nets([getattr(value, field) for field in type(value).model_fields])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nets(item)
