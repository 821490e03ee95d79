"""What `fit` looks at before it changes anything: arrays, labels and one dry pass of the net."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tuneparts.data.arrays import plain
from tuneparts.data.given import Arrays
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models.reweighted import reweighted, under_all_names
from tuneparts.models.survey import PROBE, check_logits, copied, is_lent, outputs, precision_cure
from tuneparts.partition.assign import roles_of

_IMAGE_HYPERS = ("affine", "colour", "flip")
_CHANNELS = (1, 3, 4)
_LARGEST = 100.0
"""Pixels of images that are brighter than this were hardly scaled."""


def check_arrays(inputs: Arrays, labels: Arrays, target: Target, hypers: Mapping[str, Any]) -> None:
    """Refuse inputs that look like something else than they are taken for; warn of large pixels.

    Args:
        inputs: as the caller has them.
        labels: likewise.
        target: what the labels are.
        hypers: by name; some need images.
    """
    x = plain(inputs)
    check_scaled(x, takes_tokens=True)
    if x.ndim == 4 and x.dtype.kind == "f" and x.size and np.nanmax(x) > _LARGEST:
        warnings.warn(
            f"images are scaled as the net wants them, mostly to about 1, but these go up to "
            f"{np.nanmax(x):.4g}. Use `images / {np.nanmax(x):.4g}` unless the net scales them.",
            stacklevel=3,
        )
    wants_images = [part for part in _IMAGE_HYPERS if hypers.get(part) is not None]
    if wants_images and x.ndim == 3:
        raise ConfigError(
            f"`{wants_images[0]}` moves images (N, C, H, W), but got {x.shape}, which looks like "
            "images without channels. Use `images[:, None]`."
        )
    if x.ndim == 4 and x.shape[1] not in _CHANNELS and x.shape[3] in _CHANNELS:
        how = "permute(0, 3, 1, 2)" if isinstance(inputs, torch.Tensor) else "transpose(0, 3, 1, 2)"
        raise ConfigError(
            f"images are (N, C, H, W), but got {x.shape}, which looks like (N, H, W, C). Use "
            f"`images.{how}`."
        )
    y = plain(labels)
    if isinstance(target, Classes) and y.dtype.kind in "iu" and y.size and y.min() < 0:
        raise ConfigError(f"labels count from 0, but got {y.min()} to {y.max()}.")


def check_scaled(x: npt.NDArray[Any], *, takes_tokens: bool) -> None:
    """Refuse bytes, and images of other whole numbers where the net takes real ones."""
    name = "images" if x.ndim > 2 else "inputs"
    is_unscaled = x.dtype.kind in "iu" and name == "images" and not takes_tokens
    if x.dtype == np.uint8 or is_unscaled:
        raise ConfigError(
            f"inputs {x.shape} of type {x.dtype}: the net takes them scaled as it wants them. Use "
            f"`{name} / 255`, or, where they are tokens in training too, `{name}.astype(int)`."
        )


def check_net(net: nn.Module, task: Task, *, num_held: int) -> None:
    """Refuse a net that cannot be partitioned, before anything of it changes."""
    _check_kind(net)
    copy = copied(net).cpu()
    x = torch.as_tensor(task.train.inputs[:PROBE])
    names = list(roles_of(copy, num_held=num_held))
    _check_first_label(copy, x, task)
    check_logits(copy, x, task.num_outputs, are_classes=task.num_classes > 0)

    def works(names: Sequence[str]) -> bool:
        return is_lent(
            copy, x, names, lambda net, lent: reweighted(net, under_all_names(net, lent))
        )

    if not works(names):
        wrong = [name for name in names if not works([name])] or names
        raise ConfigError(
            "a net must use its parameters through the layers that hold them, but other values in "
            f"{', '.join(f'`{name}`' for name in wrong)} do not change its outputs as they should. "
            "Keep layers as attributes or in an nn.ModuleList, and without hooks."
        )


def _check_kind(net: nn.Module) -> None:
    if isinstance(net, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ConfigError(
            f"`fit` trains a net in one process, but got a {type(net).__name__}. Give it the net "
            "inside: `net.module`."
        )
    for name, parameter in net.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                f"the net must know its shapes, but `{name}` is not initialised. Run a batch "
                "through the net first."
            )
    cure = precision_cure(net)
    if cure:
        raise ConfigError(cure.removeprefix(". "))


def _check_first_label(net: nn.Module, x: torch.Tensor, task: Task) -> None:
    """Labels that count from 1 are one too large for the net."""
    labels = task.train.labels
    if task.num_classes and labels.min() >= 1:
        width = outputs(copied(net), x, training=False).shape[1]
        if labels.max() == width:
            raise ConfigError(
                f"labels count from 0, but got {labels.min()} to {labels.max()} for a net with "
                f"{width} outputs. Use `labels - 1`."
            )
