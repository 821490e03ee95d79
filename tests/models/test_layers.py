import pytest
import torch
from torch.nn.functional import avg_pool2d

from tuneparts.core import seeding
from tuneparts.models.layers import PaddedShortcut


@pytest.mark.parametrize("num_new", [0, 1, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("side", [1, 6, 7])
def test_equals_pooling_and_concatenated_zeros(side, stride, num_new):
    x = torch.randn(2, 5, side, side + 1, generator=seeding.torch_generator(0, "x"))
    small = avg_pool2d(x, kernel_size=1, stride=stride)
    expected = torch.cat([small, small.new_zeros(2, num_new, *small.shape[2:])], dim=1)
    assert torch.equal(PaddedShortcut(stride, num_new)(x), expected)
