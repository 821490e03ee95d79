import math

import pytest
import scipy.stats
import torch

from tuneparts.hypers import Augmentation, Colour, Noise, Shapes
from tuneparts.hypers.affine import _cutout, _random_crop, _random_flip, _random_resized_crop
from tuneparts.hypers.parts import _Part


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(std: float, *, learnable: bool) -> _Part:
    return Noise(std=std).part(Shapes(), name="noise", learnable=learnable)


def colour(brightness: float, contrast: float) -> _Part:
    hyper = Colour(brightness=brightness, contrast=contrast)
    return hyper.part(Shapes((2, 4, 4)), name="colour", learnable=False)


def test_noise_has_its_standard_deviation():
    noisy = noise(0.3, learnable=True)(torch.zeros(4000), stream()).detach()
    assert scipy.stats.kstest(noisy.numpy() / 0.3, "norm").pvalue > 0.01


def test_colour_changes_each_image_by_its_own_draw():
    images = torch.rand(3, 2, 4, 4, generator=stream(1), dtype=torch.float64)
    found = colour(0.3, 0.6).double()(images, stream())
    draws = torch.empty(3, 2, dtype=torch.float64).uniform_(-1, 1, generator=stream())
    for image, (u_b, u_c), out in zip(images, draws.tolist(), found, strict=True):
        mean = image.mean()
        wanted = mean + math.exp(0.6 * u_c) * (image - mean) + 0.3 * u_b
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-7)


def test_brightness_moves_the_mean_and_contrast_does_not():
    images = torch.rand(500, 1, 3, 3, generator=stream(1))
    brighter = colour(0.5, 0.0)(images, stream())
    shift = (brighter - images).mean(dim=(1, 2, 3))
    assert scipy.stats.kstest(shift.numpy(), scipy.stats.uniform(-0.5, 1.0).cdf).pvalue > 0.01
    sharper = colour(0.0, 0.5)(images, stream())
    torch.testing.assert_close(sharper.mean(dim=(1, 2, 3)), images.mean(dim=(1, 2, 3)))
    ratio = (sharper.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))).log()
    assert 0.4 < ratio.abs().max() <= 0.5 + 1e-5


def images(num: int = 200) -> torch.Tensor:
    return 1 + torch.rand(num, 2, 5, 6, generator=stream(9))


def shifted(image: torch.Tensor, dy: int, dx: int) -> torch.Tensor:
    """An image read at (i + dy, j + dx), zero outside, pixel by pixel."""
    _, H, W = image.shape
    out = torch.zeros_like(image)
    for i in range(H):
        for j in range(W):
            if 0 <= i + dy < H and 0 <= j + dx < W:
                out[:, i, j] = image[:, i + dy, j + dx]
    return out


def test_crop_shifts_each_image_by_its_own_draw():
    x = images(40)
    seen = set()
    for image, out in zip(x, _random_crop(x, 1, stream()), strict=True):
        matches = [
            (dy, dx)
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
            if torch.equal(out, shifted(image, dy, dx))
        ]
        assert len(matches) == 1
        seen.update(matches)
    assert len(seen) == 9


def test_flip_mirrors_about_half_of_the_images():
    x = images()
    out = _random_flip(x, stream())
    flipped = [torch.equal(o, i.flip(2)) for i, o in zip(x, out, strict=True)]
    kept = [torch.equal(o, i) for i, o in zip(x, out, strict=True)]
    assert all(f != k for f, k in zip(flipped, kept, strict=True))
    assert sum(flipped) == pytest.approx(100, abs=4 * (200 * 0.25) ** 0.5)


@pytest.mark.parametrize("side", [1, 2, 3])
def test_cutout_blanks_one_square_that_may_leave_the_image(side):
    x = images()
    areas = set()
    for image, out in zip(x, _cutout(x, side, stream()), strict=True):
        gone = out == 0
        assert torch.equal(out[~gone], image[~gone])
        assert torch.equal(gone[0], gone[1])
        rows, columns = gone[0].any(1).nonzero(), gone[0].any(0).nonzero()
        height, width = len(rows), len(columns)
        assert rows[-1] - rows[0] == height - 1
        assert columns[-1] - columns[0] == width - 1
        assert gone[0].sum() == height * width
        assert max(height, width) <= side
        areas.add(height * width)
    assert max(areas) == side * side
    assert (min(areas) < side * side) == (side > 1)


def test_nothing_asked_for_is_the_very_batch():
    x = images(2)
    assert Augmentation()(x, stream()) is x


def test_steps_are_applied_in_order_from_one_generator():
    x = images(10)
    draws = stream()
    wanted = _cutout(_random_flip(_random_crop(x, 2, draws), draws), 3, draws)
    assert torch.equal(Augmentation(crop_padding=2, flip=True, cutout=3)(x, stream()), wanted)


def test_bytes_stay_bytes():
    x = (images(3) * 100).to(torch.uint8)
    out = Augmentation(crop_padding=1, flip=True, cutout=2)(x, stream())
    assert out.dtype == torch.uint8
    assert out.shape == x.shape


def test_a_resized_crop_reads_its_rectangle_bilinearly() -> None:
    size, least = 6, 0.2
    images = torch.randn(4, 2, size, size, dtype=torch.float64, generator=stream())
    found = _random_resized_crop(images, least, stream())
    draws = torch.rand((4, 4, 1), generator=stream())[..., 0].double()
    for b in range(4):
        area = (least + (1 - least) * draws[0, b]) * size**2
        ratio = (4 / 3) ** (2 * draws[1, b] - 1)
        height, width = (min(size, math.sqrt(a)) for a in (area / ratio, area * ratio))
        top, left = draws[2, b] * (size - height), draws[3, b] * (size - width)
        assert least * size**2 - 1e-6 <= height * width + 1e-6 or size in (height, width)
        for i in range(size):
            for j in range(size):
                row = top + (i + 0.5) / size * height - 0.5
                column = left + (j + 0.5) / size * width - 0.5
                expected = bilinear(images[b], float(row), float(column))
                torch.testing.assert_close(found[b, :, i, j], expected, atol=1e-5, rtol=1e-5)


def bilinear(image: torch.Tensor, row: float, column: float) -> torch.Tensor:
    last = image.shape[-1] - 1
    row, column = (min(max(place, 0.0), float(last)) for place in (row, column))
    top, left = min(int(row), last - 1), min(int(column), last - 1)
    down, right = row - top, column - left
    above = (1 - right) * image[:, top, left] + right * image[:, top, left + 1]
    below = (1 - right) * image[:, top + 1, left] + right * image[:, top + 1, left + 1]
    return (1 - down) * above + down * below


def test_a_resized_crop_is_a_step_of_the_augmentation() -> None:
    images = torch.randn(3, 1, 8, 8, generator=stream())
    cropped = Augmentation(resized_crop=0.08)(images, stream())
    assert cropped.shape == images.shape
    assert not torch.equal(cropped, images)
