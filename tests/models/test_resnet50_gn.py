import pytest
import torch
from torch import nn

from tuneparts.models.layers import PaddedShortcut
from tuneparts.models.resnet50_gn import ResNet50Gn


def build(config: ResNet50Gn) -> nn.Module:
    with torch.device("meta"):
        return config.build((3, 64, 64), 200)


def test_fifty_layers_and_skips_without_weights():
    net = build(ResNet50Gn())
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in net.modules()) == 50
    assert sum(isinstance(m, PaddedShortcut) for m in net.modules()) == 2
    assert all(m.kernel_size == (3, 3) for m in net.modules() if isinstance(m, nn.Conv2d))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_every_norm_has_the_asked_number_of_groups(groups):
    norms = [
        m
        for m in build(ResNet50Gn(num_per_stage=1, groups=groups)).modules()
        if isinstance(m, nn.GroupNorm)
    ]
    assert len(norms) == 7
    assert {norm.num_groups for norm in norms} == {groups}
