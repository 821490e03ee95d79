import pytest
import torch

from tuneparts.augment.fixed import FixedConfig, cutout, random_crop, random_flip


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    for image, out in zip(x, random_crop(x, 1, stream()), strict=True):
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
    out = random_flip(x, stream())
    flipped = [torch.equal(o, i.flip(2)) for i, o in zip(x, out, strict=True)]
    kept = [torch.equal(o, i) for i, o in zip(x, out, strict=True)]
    assert all(f != k for f, k in zip(flipped, kept, strict=True))
    assert sum(flipped) == pytest.approx(100, abs=4 * (200 * 0.25) ** 0.5)


@pytest.mark.parametrize("side", [1, 2, 3])
def test_cutout_blanks_one_square_that_may_leave_the_image(side):
    x = images()
    areas = set()
    for image, out in zip(x, cutout(x, side, stream()), strict=True):
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
    assert FixedConfig()(x, stream()) is x


def test_steps_are_applied_in_order_from_one_generator():
    x = images(10)
    draws = stream()
    wanted = cutout(random_flip(random_crop(x, 2, draws), draws), 3, draws)
    assert torch.equal(FixedConfig(crop_padding=2, flip=True, cutout=3)(x, stream()), wanted)


def test_bytes_stay_bytes():
    x = (images(3) * 100).to(torch.uint8)
    out = FixedConfig(crop_padding=1, flip=True, cutout=2)(x, stream())
    assert out.dtype == torch.uint8
    assert out.shape == x.shape
