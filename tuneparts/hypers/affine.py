"""Learnable affine motions of images, in three parametrisations; fixed crops, flip and cutout.

Every image of a batch has a draw of its own. Matrices are exponentials of planar affine generators,
without a matrix exponential: every power series of a 2x2 matrix L = m I + D with trace-free D is a
combination a I + b D, because D D = q I. The series runs on two numbers per matrix, and for 2000
matrices forward and backward take about a fifth of the time of `torch.matrix_exp`.

Legend: B images, S samples of each, N = B * S, C channels, H height, W width, P = H * W.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tuneparts.hypers.hyper import POSITIVE, REAL
from tuneparts.hypers.kinds import Affine, BentonAffine, SchwoebelAffine, Theta
from tuneparts.hypers.parts import _ConstrainedParameter, _Part

# With these, truncation stays under one unit in the last place for generators of norm up to
# 2**NUM_SQUARINGS (a half turn has norm pi), and grows smoothly beyond.
NUM_TERMS = {torch.float64: 18, torch.float32: 11}
NUM_SQUARINGS = 3

Array = TypeVar("Array", Tensor, npt.NDArray[np.floating])


class AffineModule(_Part):
    """Random affine motions of images, with learnable or fixed ranges."""

    makes_copies = True

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        """Draw matrices A_N23; an output position p in [-1, 1]^2 reads the input at A (p, 1)."""
        raise NotImplementedError

    def draws(self, *, training: bool) -> bool:  # noqa: ARG002
        return not self.is_identity

    def forward(self, x_BCHW: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Move each image, sample s of b at b * S + s; the identity returns the very pixels."""
        if self.is_identity:
            return x_BCHW if num_samples == 1 else x_BCHW.repeat_interleave(num_samples, dim=0)
        return resample(x_BCHW, self.sample(len(x_BCHW) * num_samples, generator))


class Exponential(AffineModule):
    """A = exp(sum_k u_k eta_k G_k), u ~ U(-most, most)^6, eta = softplus(raw) when learnable."""

    most: ClassVar[float]
    held_in: ClassVar[str]
    """Name of the vector eta in the state."""
    generators_66: Tensor

    def __init__(self, config: Affine | BentonAffine, *, learnable: bool) -> None:
        super().__init__()
        self._names, rows = config.NAMES, np.reshape(list(config.GENERATORS.values()), (6, 6))
        generators_66 = torch.tensor(rows, dtype=torch.get_default_dtype())
        self.register_buffer("generators_66", generators_66, persistent=False)
        self._units: list[float] = (self.most * rows.max(axis=1)).tolist()
        """The largest motion per unit of eta."""
        maxima = [getattr(config, name) for name in self._names]
        eta = [one / unit for one, unit in zip(maxima, self._units, strict=True)]
        parameter = _ConstrainedParameter(
            eta, link=POSITIVE, learnable=learnable, names=self._names
        )
        self.add_module(self.held_in, parameter)
        self.is_identity = not learnable and not any(eta)

    @property
    def eta(self) -> _ConstrainedParameter:
        found = self.get_submodule(self.held_in)
        assert isinstance(found, _ConstrainedParameter)
        return found

    def ranges(self) -> Tensor:
        """The vector eta (6,) as it acts; differentiable."""
        return self.eta.tensor()

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        eta = self.ranges()
        u_N6 = eta.new_empty(num, 6).uniform_(-self.most, self.most, generator=generator)
        return _exponential((u_N6 @ (eta[:, None] * self.generators_66)).view(num, 2, 3))

    def values(self) -> dict[str, float]:
        eta = self.ranges().tolist() if self.eta.learnable else self.eta.numbers()
        each = zip(self._names, eta, self._units, strict=True)
        return {name: one * unit for name, one, unit in each}


class _Lila(Exponential):
    """The maxima are eta. A learnt rotation pi + d is reflected at pi, and acts as pi - d.

    A cap would be a dead end: its gradient is zero, and no later step could leave it.
    """

    most = 1.0
    held_in = "maxima"

    def __init__(self, config: Affine, *, learnable: bool) -> None:
        capped = config.replaced({"rotation": min(config.rotation, math.pi)})
        super().__init__(capped, learnable=learnable)

    def ranges(self) -> Tensor:
        eta_6, place = self.eta.tensor(), Affine.NAMES.index("rotation")
        if not self.eta.learnable:
            return eta_6
        turned = math.pi - (torch.remainder(eta_6[place], 2 * math.pi) - math.pi).abs()
        is_beyond = torch.zeros_like(eta_6, dtype=torch.bool)
        is_beyond[place] = eta_6[place].detach() > math.pi
        return torch.where(is_beyond, turned, eta_6)


class _Benton(Exponential):
    """Widths are eta, twice the maxima; translations in tenths."""

    most = 0.5
    held_in = "widths"


class _Schwoebel(AffineModule):
    """theta = theta_min + (theta_max - theta_min) eps, eps ~ U(0, 1)^7.

    The matrix is R(rotation) [[1, 0], [shear_y, 1]] [[1, shear_x], [0, 1]] diag(scale_x, scale_y)
    and the offset minus that matrix times the translation: a position p reads at A (p - t).
    """

    def __init__(self, config: SchwoebelAffine, *, learnable: bool) -> None:
        super().__init__()
        self.is_identity = not learnable and config.theta_min == config.theta_max == Theta()
        self.theta_min, self.theta_max = (
            _ConstrainedParameter(
                list(end.model_dump().values()), link=REAL, learnable=learnable, names=config.NAMES
            )
            for end in (config.theta_min, config.theta_max)
        )

    def sample(self, num: int, generator: torch.Generator) -> Tensor:
        low, high = self.theta_min.tensor(), self.theta_max.tensor()
        eps_N7 = low.new_empty(num, 7).uniform_(0, 1, generator=generator)
        theta_N7 = torch.lerp(low, high, eps_N7)
        angle, scale_x, scale_y, shear_x, shear_y, move_x, move_y = theta_N7.unbind(1)
        cos, sin = angle.cos(), angle.sin()
        # Columns of the product of the shears: (1, shear_y) and (shear_x, 1 + shear_x shear_y).
        corner = 1 + shear_x * shear_y
        a11 = (cos - sin * shear_y) * scale_x
        a21 = (sin + cos * shear_y) * scale_x
        a12 = (cos * shear_x - sin * corner) * scale_y
        a22 = (sin * shear_x + cos * corner) * scale_y
        offset_x = -(a11 * move_x + a12 * move_y)
        offset_y = -(a21 * move_x + a22 * move_y)
        return torch.stack([a11, a12, offset_x, a21, a22, offset_y], dim=1).view(num, 2, 3)

    def values(self) -> dict[str, float]:
        numbers = (*self.theta_min.numbers(), *self.theta_max.numbers())
        return dict(zip(SchwoebelAffine.known(""), numbers, strict=True))


PARTS: dict[str, Callable[..., AffineModule]] = {
    "lila": _Lila,
    "benton": _Benton,
    "schwoebel": _Schwoebel,
}


def resample(x_BCHW: Tensor, A_N23: Tensor) -> Tensor:
    """Read each image at A (x, y, 1) for all positions; the samples of one share a long grid."""
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
    # The middle for a single pixel, which has no two corners to align.
    ys, xs = (
        torch.linspace(0 if size == 1 else -1, 1, size, dtype=dtype, device=device)
        for size in (height, width)
    )
    x_HW, y_HW = torch.meshgrid(xs, ys, indexing="xy")
    point_3HW1 = torch.stack([x_HW, y_HW, torch.ones_like(x_HW)])[..., None]
    return (point_3HW1 * torch.eye(2, dtype=dtype, device=device).view(2, 1, 1, 1, 2)).view(6, -1)


def _exponential(generator_N23: Tensor) -> Tensor:
    """First two rows of exp([[L, t], [0, 0]]): [exp(L), phi(L) t], phi(z) = (exp(z) - 1) / z."""
    num_terms = NUM_TERMS.get(generator_N23.dtype, max(NUM_TERMS.values()))
    rows_N6 = generator_N23.flatten(1)
    if rows_N6.device.type == "cpu" and not rows_N6.requires_grad:
        # A hundred operations on a few numbers: numpy starts each in a third of torch's time.
        columns = np.ascontiguousarray(rows_N6.numpy().T)
        found = np.stack(_columns(*columns, num_terms=num_terms), axis=1)
        return torch.from_numpy(found).view(-1, 2, 3)
    return torch.stack(_columns(*rows_N6.unbind(1), num_terms=num_terms), dim=1).view(-1, 2, 3)


def _columns(
    l11: Array, l12: Array, t1: Array, l21: Array, l22: Array, t2: Array, *, num_terms: int
) -> list[Array]:
    """The six entries of the exponentials, (N,) each, from those of the generators."""
    mean = (l11 + l22) / 2
    half = (l11 - l22) / 2
    square = half * half + l12 * l21

    # phi of the generator divided by 2**NUM_SQUARINGS, by Horner's rule.
    m = mean / 2**NUM_SQUARINGS
    q = square / 4**NUM_SQUARINGS
    a, b = m * 0 + 1 / math.factorial(num_terms), m * 0
    for k in range(num_terms - 1, 0, -1):
        a, b = q * b + m * a + 1 / math.factorial(k), a + m * b
    # phi(2 L) = phi(L) (exp(L) + I) / 2; the basis D doubles each time, so b halves.
    for _ in range(NUM_SQUARINGS):
        plus = 2 + (m * a + q * b)
        e = a + m * b
        a, b = (a * plus + q * b * e) / 2, (a * e + b * plus) / 4
        m, q = 2 * m, 4 * q
    c = 1 + (m * a + q * b)
    e = a + m * b
    return [
        c + e * half,
        e * l12,
        a * t1 + b * (half * t1 + l12 * t2),
        e * l21,
        c - e * half,
        a * t2 + b * (l21 * t1 - half * t2),
    ]


def _random_resized_crop(x_BCHW: Tensor, least: float, generator: torch.Generator) -> Tensor:
    """Crop each image to a random rectangle of at least a share `least`, scaled to the old size."""
    B, _, H, W = x_BCHW.shape
    draws = torch.rand((4, B, 1), generator=generator, device=x_BCHW.device)
    area = (least + (1 - least) * draws[0]) * H * W
    ratio = torch.exp((2 * draws[1] - 1) * math.log(4 / 3))
    height, width = (area / ratio).sqrt().clamp(max=H), (area * ratio).sqrt().clamp(max=W)

    def places(size: int, length_B1: Tensor, draw_B1: Tensor) -> Tensor:
        """Where the pixels of a side are read, (B, size), in units of `grid_sample`."""
        centres = (torch.arange(size, device=x_BCHW.device) + 0.5) / size
        return (draw_B1 * (size - length_B1) + centres * length_B1) * (2 / size) - 1

    rows, columns = places(H, height, draws[2]), places(W, width, draws[3])
    x_BHW, y_BHW = columns[:, None].expand(B, H, W), rows[:, :, None].expand(B, H, W)
    grid = torch.stack([x_BHW, y_BHW], dim=-1)
    return functional.grid_sample(
        x_BCHW, grid.to(x_BCHW.dtype), mode="bilinear", padding_mode="border", align_corners=False
    )


def _random_crop(x_BCHW: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift each image by up to `padding` pixels along each axis, zeros moving in."""
    (B, _, H, W), device = x_BCHW.shape, x_BCHW.device
    windows = functional.pad(x_BCHW, [padding] * 4).unfold(2, H, 1).unfold(3, W, 1)
    top, left = torch.randint(2 * padding + 1, (2, B), generator=generator, device=device)
    return windows[torch.arange(B, device=device), :, top, left]


def _random_flip(x_BCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left and right with probability one half."""
    shape = (len(x_BCHW), 1, 1, 1)
    is_flipped = torch.randint(2, shape, generator=generator, device=x_BCHW.device) == 1
    return torch.where(is_flipped, x_BCHW.flip(3), x_BCHW)


def _cutout(x_BCHW: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Zero a square around a random pixel of each image (DeVries and Taylor 2017)."""
    (B, _, H, W), device = x_BCHW.shape, x_BCHW.device

    def is_within(size: int) -> Tensor:
        """Whether each of `size` positions lies in [centre - side // 2, ... + side), (B, size)."""
        centre_B1 = torch.randint(size, (B, 1), generator=generator, device=device)
        offset = torch.arange(size, device=device) - centre_B1 + side // 2
        return (offset >= 0) & (offset < side)

    in_rows, in_columns = is_within(H), is_within(W)
    return x_BCHW.masked_fill((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0)
