"""The base of the three affine parametrisations: draw matrices, move images, name the values.

Legend: B images, S samples of each, N = B * S, C channels, H height, W width,
P = H * W.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tuneparts.hypers.hyper import Hyper, Part, Shapes


class Affine(Part):
    """Random affine motions of images, with learnable or fixed ranges.

    Args:
        learnable: whether the ranges are parameters.
        is_identity: whether the ranges are fixed and hold nothing but the identity.
    """

    makes_copies = True

    def __init__(self, *, learnable: bool, is_identity: bool) -> None:
        super().__init__()
        self.learnable = learnable
        self.is_identity = is_identity

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Draw independent random matrices.

        Returns:
            A_N23 with N = `num`: an output position p in [-1, 1]^2 (corner pixels' centres at
            the corners) reads the input at A (p, 1). Differentiable in the learnable ranges.
        """
        raise NotImplementedError

    def draws(self, *, training: bool) -> bool:  # noqa: ARG002
        return not self.is_identity

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


class AffineConfig(Hyper):
    """The base of the configs of affine augmentation: where ranges start, or stay when fixed."""

    acts_on = "inputs"
    needs_images = True

    def build(self, *, learnable: bool) -> Affine:
        """Build the augmentation with these ranges."""
        raise NotImplementedError

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> Affine:  # noqa: ARG002
        return self.build(learnable=learnable)

    def _noun(self, name: str) -> str:
        kind: Any = getattr(self, "kind", name)
        return f"hyper of the affine kind `{kind}`"


def resample(x_BCHW: Tensor, A_N23: Tensor) -> Tensor:
    """Read each image at A (x, y, 1) for every output position (x, y) in [-1, 1]^2.

    The corners of the square are the centres of the corner pixels (`align_corners=True`).
    Samples of one image are stacked along the height of one long grid, so that the images are
    never repeated.

    Args:
        x_BCHW: images.
        A_N23: one matrix per sample, those of image b at b * S ... b * S + S - 1.

    Returns:
        x_NCHW in the order of the matrices.
    """
    B, C, H, W = x_BCHW.shape
    N = len(A_N23)
    # One product with a (6, P * 2) basis: `affine_grid` multiplies N small matrices instead
    # and takes more than ten times as long.
    basis_62P = _basis(H, W, A_N23.dtype, A_N23.device)
    grid = (A_N23.flatten(1) @ basis_62P).to(x_BCHW.dtype).view(B, (N // B) * H, W, 2)
    moved = functional.grid_sample(
        x_BCHW, grid, mode="bilinear", padding_mode="zeros", align_corners=True
    )
    return moved.reshape(B, C, N // B, H, W).transpose(1, 2).reshape(N, C, H, W)


@functools.lru_cache(maxsize=16)
def _basis(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The (6, P * 2) matrix that takes a flattened 2x3 matrix to its sampling grid."""
    ys, xs = (_positions(size, dtype, device) for size in (height, width))
    point_3HW = torch.stack(
        [
            xs.expand(height, width),
            ys[:, None].expand(height, width),
            torch.ones(height, width, dtype=dtype, device=device),
        ]
    )
    basis = torch.zeros(2, 3, height, width, 2, dtype=dtype, device=device)
    basis[0, ..., 0] = point_3HW
    basis[1, ..., 1] = point_3HW
    return basis.view(6, -1)


def _positions(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if size == 1:  # the middle: a single pixel has no two corners to align
        return torch.zeros(1, dtype=dtype, device=device)
    return torch.linspace(-1, 1, size, dtype=dtype, device=device)
