import numpy as np
import pytest
from scipy import ndimage

from tuneparts.core.errors import ConfigError
from tuneparts.data.variants import angles, resample


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (12, 2, 9, 9), dtype=np.uint8)


def _reference(image_HW, degrees):
    """Bilinear by hand: each output pixel looks up its source among zeros outside."""
    height, width = image_HW.shape
    a = np.deg2rad(degrees)
    rows, cols = np.mgrid[:height, :width]
    u, v = cols - (width - 1) / 2, rows - (height - 1) / 2
    source_col = np.cos(a) * u - np.sin(a) * v + (width - 1) / 2
    source_row = np.sin(a) * u + np.cos(a) * v + (height - 1) / 2
    padded = np.pad(image_HW.astype(np.float64), 2)
    return ndimage.map_coordinates(
        padded, [source_row + 2, source_col + 2], order=1, mode="constant", cval=0.0
    )


def test_quarter_turns_are_exact_and_counter_clockwise(images):
    for turns in range(4):
        got = resample(images, degrees_N=np.full(12, 90.0 * turns), pool=1)
        np.testing.assert_array_equal(got, np.rot90(images, turns, axes=(2, 3)))


@pytest.mark.parametrize("shape", [(9, 9), (8, 8), (6, 11)])
def test_any_angle_matches_bilinear_by_hand(shape):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (8, 1, *shape), dtype=np.uint8)
    degrees = rng.uniform(-180, 180, 8)
    got = resample(images, degrees_N=degrees, pool=1)
    for image, angle, result in zip(images, degrees, got, strict=True):
        # Half a grey level is rounding; the reference rounds at the same place but for ties.
        assert np.abs(result[0] - _reference(image[0], angle)).max() <= 0.5 + 1e-6


def test_pooling_comes_after_the_rotation_and_rounds_once(images):
    even = images[:, :, :8, :8]
    degrees = np.linspace(-170, 170, 12)
    got = resample(even, degrees_N=degrees, pool=2)
    for image, angle, result in zip(even, degrees, got, strict=True):
        fine = _reference(image[1], angle)
        coarse = fine.reshape(4, 2, 4, 2).mean(axis=(1, 3))
        assert np.abs(result[1] - coarse).max() <= 0.5 + 1e-6


def test_pooling_alone_averages_blocks(images):
    got = resample(images, degrees_N=None, pool=3)
    means = images.reshape(12, 2, 3, 3, 3, 3).mean(axis=(3, 5))
    assert np.abs(got - means).max() <= 0.5 + 1e-9


def test_an_image_does_not_depend_on_its_company(images):
    degrees = np.linspace(-170, 170, 12)
    together = resample(images, degrees_N=degrees, pool=1)
    alone = np.concatenate(
        [resample(images[i : i + 1], degrees_N=degrees[i : i + 1], pool=1) for i in range(12)]
    )
    np.testing.assert_array_equal(together, alone)


def test_a_pool_that_does_not_divide_is_refused(images):
    with pytest.raises(ConfigError, match="2 for 9 x 9"):
        resample(images, degrees_N=None, pool=2)


def test_angles_belong_to_the_place_in_the_part():
    np.testing.assert_array_equal(angles(100, "train")[:10], angles(10, "train"))
    assert not np.allclose(angles(10, "train"), angles(10, "test"))


def test_angles_cover_the_circle_evenly():
    counts, _ = np.histogram(angles(10_000, "train"), bins=8, range=(-180, 180))
    assert counts.sum() == 10_000
    # Six standard deviations of a bin's count.
    assert np.abs(counts - 1250).max() < 6 * np.sqrt(1250)
