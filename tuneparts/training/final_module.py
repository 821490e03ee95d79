"""A trained learner as one ordinary module: what is kept and served when training is over.

The module takes inputs as data sets hold them, normalises them as training did, and predicts what
the learner was scored by: the same net, hypers and averaging. Its draws of augmentation start in
each call where those of the test scores started, so equal inputs have equal predictions.

Shapes: B examples, K classes, C channels, H height, W width, D features, M members.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.data.target import Target
from tuneparts.hypers import Hypers


class FinalModule(nn.Module):
    """Maps pixels (B, C, H, W) from 0 to 255, real numbers, or whole ones, to outputs (B, K).

    Args:
        body: from normalised inputs to outputs.
        mean: of each channel or feature, with pixels from 0 to 1; empty for whole numbers, which
            are not normalised.
        std: likewise.
        is_image: whether inputs are pixels.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, body: nn.Module, *, mean: Sequence[float], std: Sequence[float], is_image: bool
    ) -> None:
        super().__init__()
        self.body = body
        scale = 255.0 if is_image else 1.0
        self.register_buffer("mean", scale * torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", scale * torch.tensor(std, dtype=torch.float32))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, K)."""
        if self.mean.numel():
            shape = (1, -1, *[1] * (x.ndim - 2))
            x = (x.to(self.mean.dtype) - self.mean.view(shape)) / self.std.view(shape)
        outputs_BK: Tensor = self.body(x)
        return outputs_BK


class UnderHypers(nn.Module):
    """Predicts with a net under its hypers, averaged over draws of a fixed stream."""

    def __init__(self, net: nn.Module, hypers: Hypers, seed: int) -> None:
        super().__init__()
        self.net = net
        self.hypers = hypers
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        generator = seeding.torch_generator(self.seed, "evaluate test", device=x.device)
        return self.hypers.predict(self.net, x, generator=generator, training=False)


class MeanOfMembers(nn.Module):
    """Predicts what the target makes of several members: the mean of probabilities or values."""

    def __init__(self, model: nn.Module, target: Target) -> None:
        super().__init__()
        self.model = model
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        return self.target.combined(self.model(x))
