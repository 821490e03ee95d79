import numpy as np
import pytest
import scipy.ndimage
import torch
from torch.nn import functional

from tuneparts.hypers.affine import resample


def reference(image_HW: np.ndarray, A_23: np.ndarray) -> np.ndarray:
    """One channel read pixel by pixel, positions written out."""
    H, W = image_HW.shape
    rows, columns = np.empty((H, W)), np.empty((H, W))
    for i in range(H):
        for j in range(W):
            x, y = A_23 @ [-1 + 2 * j / (W - 1), -1 + 2 * i / (H - 1), 1]
            rows[i, j], columns[i, j] = (y + 1) / 2 * (H - 1), (x + 1) / 2 * (W - 1)
    return scipy.ndimage.map_coordinates(
        image_HW, [rows, columns], order=1, mode="grid-constant", cval=0
    )


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def matrices() -> torch.Tensor:
    noise = torch.randn(12, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.eye(2, 3, dtype=torch.float64) + 0.4 * noise


def test_equals_map_coordinates(images, matrices):
    moved = resample(images, matrices)
    assert moved.shape == (12, 2, 5, 7)
    for n in range(12):
        for c in range(2):
            wanted = reference(images[n // 4, c].numpy(), matrices[n].numpy())
            np.testing.assert_allclose(moved[n, c].numpy(), wanted, atol=1e-12)


def test_equals_repeating_the_images(images, matrices):
    grid = functional.affine_grid(matrices, [12, 2, 5, 7], align_corners=True)
    wanted = functional.grid_sample(images.repeat_interleave(4, 0), grid, align_corners=True)
    torch.testing.assert_close(resample(images, matrices), wanted, rtol=0, atol=1e-13)


def test_identity_reads_the_image(images):
    identity = torch.eye(2, 3, dtype=torch.float64).expand(3, 2, 3)
    torch.testing.assert_close(resample(images, identity), images, rtol=0, atol=1e-13)


def test_samples_of_one_image_stay_together():
    brightness = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1, 1).expand(3, 1, 3, 3)
    left_half_gone = torch.tensor([[1.0, 0, -1], [0, 1, 0]])
    matrices = torch.stack([torch.eye(2, 3), left_half_gone] * 3)
    moved = resample(brightness, matrices)
    centre, corner = moved[:, 0, 1, 1], moved[:, 0, 0, 0]
    assert centre.tolist() == [1, 1, 2, 2, 3, 3]
    assert corner.tolist() == [1, 0, 2, 0, 3, 0]


def test_one_pixel_sits_in_the_middle():
    pixel = torch.ones(1, 1, 1, 1)
    turned = torch.tensor([[[0.0, -1, 0], [1, 0, 0]]])
    assert resample(pixel, turned).item() == 1


def test_matrices_of_another_precision_keep_the_images_dtype(images, matrices):
    assert resample(images.float(), matrices).dtype == torch.float32


def test_the_memory_layout_of_the_images_does_not_matter(images, matrices):
    other = images.contiguous(memory_format=torch.channels_last)
    assert not other.is_contiguous()
    torch.testing.assert_close(resample(other, matrices), resample(images, matrices))
