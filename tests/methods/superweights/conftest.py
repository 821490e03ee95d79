from collections.abc import Callable

import pytest
import torch

from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods.superweights._clusters import Layer, layers_of
from tuneparts.nets import WideResNet

WrnLayers = Callable[..., list[Layer]]


@pytest.fixture(scope="session")
def wrn_layers() -> WrnLayers:
    """Layers of members given as (depth, width), without allocating any weight."""

    def make(*members: tuple[int, float]) -> list[Layer]:
        layers = []
        for number, (depth, width) in enumerate(members):
            with torch.device("meta"):
                net = WideResNet(depth=depth, width=width).build((3, 32, 32), 100)
            layers += layers_of(net, number)
        return layers

    return make


@pytest.fixture(scope="session")
def toy() -> Task:
    return Data(name="stripes", num_train=96, num_val=16, num_test=16).load()
