"""The arms of SSN, MSDNet and HNE can be built at the published sizes."""

import pytest
import torch

from tuneparts import Scale
from tuneparts.methods.ensembles._hne import cut
from tuneparts.methods.ensembles.config import Hne, MsdNetEnsemble
from tuneparts.methods.superweights._clusters import depth_bins, layers_of
from tuneparts.methods.superweights._similarity import members_of
from tuneparts.methods.superweights._ssn import bank_sizes, readings
from tuneparts.methods.superweights.config import Ssn
from tuneparts.nets import MsdNet
from tuneparts.search.load import load

SHAPE, NUM_CLASSES = (3, 32, 32), 100


@pytest.mark.parametrize("name", ["superweights_anytime", "superweights_ensembles"])
def test_published_sizes_fit(name: str) -> None:
    configs = [arm.config for arm in load(name, scale=Scale.PAPER).arms]
    for config in configs:
        match config:
            case Ssn():
                assert config.budget is not None
                assert _ssn_weights(config) <= config.budget
            case MsdNetEnsemble():
                assert config.sizes == MsdNet(exits=16, growth=12)  # counted in tests/nets
            case Hne():
                assert config.num_members == 16
                net = config.net.build(SHAPE, NUM_CLASSES)
                starts, flops = cut(net, config.levels + 1, SHAPE)
                assert len(starts) == len(flops) == 5
    found = {type(config) for config in configs}
    assert {Ssn, Hne} <= found


def _ssn_weights(config: Ssn) -> int:
    layers = []
    for member, net in enumerate(config.members):
        with torch.device("meta"):
            layers += layers_of(net.build(SHAPE, NUM_CLASSES), member)
    labels = depth_bins(layers, config.num_groups)
    sizes = bank_sizes(layers, labels, config.budget or 0)
    for size, positions in zip(sizes, members_of(labels).values(), strict=True):
        assert all(
            one.start + one.length <= size
            for one in readings([layers[p] for p in positions], size, config.max_templates)
        )
    return sum(sizes)
