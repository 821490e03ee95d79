"""What the three affine parametrisations share: draw matrices, move images, name their values.

Legend: B images, S samples of each, N = B * S, C channels, H height, W width.
"""

import torch
from torch import Tensor, nn

from tuneparts.augment.affine.resampling import resample
from tuneparts.config import Config


class Affine(nn.Module):
    """Random affine motions of images, with learnable or fixed ranges.

    Args:
        learnable: whether the ranges are parameters.
        is_identity: whether the ranges are fixed and hold nothing but the identity.
    """

    def __init__(self, *, learnable: bool, is_identity: bool) -> None:
        super().__init__()
        self.learnable = learnable
        self.is_identity = is_identity

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Independent random matrices.

        Returns:
            A_N23 with N = `num`: an output position p in [-1, 1]^2 (corner pixels' centres at
            the corners) reads the input at A (p, 1). Differentiable in the learnable ranges.
        """
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """The ranges by metric name without `hyper/`, each as the largest motion."""
        raise NotImplementedError

    def forward(self, x_BCHW: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Move each image `num_samples` times independently; zero outside the image.

        The identity copies instead of resampling, and so returns the very pixels. More than one
        sample of it is a waste that only an explicit `num_samples` brings about.

        Returns:
            x_NCHW, sample s of image b at b * S + s.
        """
        if self.is_identity:
            return x_BCHW if num_samples == 1 else x_BCHW.repeat_interleave(num_samples, dim=0)
        return resample(x_BCHW, self.sample(len(x_BCHW) * num_samples, generator))


class AffineConfig(Config):
    """Which parametrisation, and where its ranges start (learnable) or stay (fixed)."""

    def build(self, *, learnable: bool) -> Affine:
        """The augmentation."""
        raise NotImplementedError
