"""Small variants of every net that can be partitioned."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import tuneparts as tp
from tuneparts.core import seeding
from tuneparts.data.config import Data
from tuneparts.data.task import Task


@dataclass(frozen=True)
class NetCase:
    config: tp.nets.NetConfig
    in_shape: tuple[int, ...]
    num_classes: int = 4

    def build(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
        """The net with every zero or one of its initialisation perturbed, so that nothing hides."""
        with seeding.isolated(seed, "init"):
            net = self.config.build(self.in_shape, self.num_classes).to(dtype)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return net

    def batch(self, num: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64):
        generator = seeding.torch_generator(seed, "batch")
        x = torch.randn(num, *self.in_shape, generator=generator, dtype=dtype)
        return x, torch.randint(self.num_classes, (num,), generator=generator)


NETS = {
    "mlp": NetCase(tp.nets.Mlp(widths=(16, 12)), (7,)),
    "mnist_cnn": NetCase(tp.nets.MnistCnn(channels=(6, 8), hidden=(12, 10)), (1, 8, 8)),
    "digits_cnn": NetCase(tp.nets.DigitsCnn(channels=(6, 8), hidden=12), (1, 8, 8)),
    "fixup_resnet": NetCase(tp.nets.FixupResNet(depth=8, planes=4), (3, 8, 8)),
    "wide_resnet": NetCase(tp.nets.WideResNet(depth=10, width=1), (3, 8, 8)),
    "resnet50_gn": NetCase(tp.nets.ResNet50Gn(num_per_stage=1), (3, 8, 8)),
    "resnet9": NetCase(tp.nets.ResNet9(width=4), (3, 8, 8)),
    "resnet18": NetCase(tp.nets.ResNet18(), (3, 8, 8)),
    "mobilenet_v2": NetCase(tp.nets.MobileNetV2(), (3, 8, 8)),
}
SLOW = {"resnet18", "mobilenet_v2"}


@pytest.fixture(
    params=[pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NETS]
)
def any_net(request) -> NetCase:
    return NETS[request.param]


@pytest.fixture(params=[name for name in NETS if name not in SLOW])
def small_net(request) -> NetCase:
    return NETS[request.param]


@pytest.fixture
def mlp() -> NetCase:
    return NETS["mlp"]


@pytest.fixture
def digits_cnn() -> NetCase:
    return NETS["digits_cnn"]


@pytest.fixture(scope="session")
def stripes() -> Task:
    return Data(name="stripes", num_train=60, num_val=20, num_test=20).load()


class _InDouble:
    """The same examples with inputs in float64."""

    def __init__(self, examples):
        self._examples = examples

    def take(self, indices, **stream):
        x, y = self._examples.take(indices, **stream)
        return x.double(), y


@pytest.fixture
def in_double():
    """Gives a learner weights, hypers and data in float64, for exact comparisons."""

    def convert(learner):
        learner.parts.double()
        learner.hypers.double()
        learner.train_data = _InDouble(learner.train_data)
        return learner

    return convert


@pytest.fixture
def nets() -> dict[str, NetCase]:
    return NETS
