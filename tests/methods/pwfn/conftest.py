import pytest
import torch
from torch import nn

from tuneparts.methods.pwfn import _sigma
from tuneparts.methods.pwfn._gaussian import Gaussians, cover


@pytest.fixture
def net() -> nn.Sequential:
    """Convolutions with groups, dilation, reflection and bias, a norm, and a linear layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 8, 3, padding="same", dilation=2, groups=2),
            nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect", groups=4),
            nn.Flatten(),
            nn.Linear(4 * 4 * 4, 5),
        )


@pytest.fixture
def x_BCHW() -> torch.Tensor:
    return torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def gaussians(net: nn.Sequential) -> Gaussians:
    """Over all layers of `net` but its norm, with small deviations."""
    made = Gaussians(net, cover(net)[0])
    _sigma.initialise(made, 0.02)
    return made
