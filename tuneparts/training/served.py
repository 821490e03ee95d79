"""A trained learner as one module that predicts: what is kept when training is over.

The module takes inputs as data sets hold them, normalises them as training did, and answers with
what the learner was scored by: the same net, hypers and averaging. Its draws of augmentation start
in each call where those of the test scores started, so equal inputs have equal predictions.

Legend: B examples, K classes, C channels, H height, W width, D features, M members.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts import seeding
from tuneparts.errors import ConfigError
from tuneparts.training.hyper import Hypers
from tuneparts.training.members.learner import MembersLearner
from tuneparts.training.members.predictions import mean_log_probs
from tuneparts.training.supervised import SupervisedLearner


class Served(nn.Module):
    """Pixels (B, C, H, W) from 0 to 255, or vectors (B, D), to logits (B, K)."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, body: nn.Module, *, mean: Sequence[float], std: Sequence[float], is_image: bool
    ) -> None:
        super().__init__()
        self.body = body
        shape = (1, len(mean), 1, 1) if is_image else (1, len(mean))
        scale = 255.0 if is_image else 1.0
        self.register_buffer("mean", scale * torch.tensor(mean).view(shape))
        self.register_buffer("std", scale * torch.tensor(std).view(shape))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        logits_BK: Tensor = self.body((x.to(self.mean.dtype) - self.mean) / self.std)
        return logits_BK


class _Averaged(nn.Module):
    """A net under its hypers, averaged over draws."""

    def __init__(self, net: nn.Module, hypers: Hypers, seed: int) -> None:
        super().__init__()
        self.net = net
        self.hypers = hypers
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        generator = seeding.torch_generator(self.seed, "evaluate test", device=x.device)
        return self.hypers.predict(self.net, x, generator=generator, training=False)


class _Mean(nn.Module):
    """The mean prediction of several members."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits_MBK = self.model(x)
        return mean_log_probs(logits_MBK)


def served(learner: Any) -> Served:
    """The module of a learner, in evaluation mode; shares its tensors.

    Raises:
        ConfigError: The learner has no single model.
    """
    body: nn.Module
    if isinstance(learner, SupervisedLearner):
        body = _Averaged(learner.final_net(), learner.hypers, learner.context.seed)
    elif isinstance(learner, MembersLearner):
        body = _Mean(learner.model)
    else:
        raise ConfigError(
            "a model is kept of learners that train one net or one set of members, but got "
            f"{type(learner).__name__}. Keep the model of another arm."
        )
    task = learner.context.task
    module = Served(body, mean=task.mean, std=task.std, is_image=len(task.in_shape) == 3)
    return module.to(learner.context.device).eval()
