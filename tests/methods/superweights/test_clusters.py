from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights import _clusters
from tuneparts.methods.superweights._allocation import least_weights
from tuneparts.methods.superweights._clusters import Layer, layers_of
from tuneparts.methods.superweights._similarity import split
from tuneparts.nets import DigitsCnn, MobileNetV2, WideResNet


def counts(layers: list[Layer], labels: list[int], member: int, kind: str) -> list[int]:
    found = Counter(
        label
        for layer, label in zip(layers, labels, strict=True)
        if layer.member == member and layer.kind == kind
    )
    return [found[label] for label in sorted(found)]


def test_bins_of_relative_depth(wrn_layers) -> None:
    layers = wrn_layers((28, 2), (16, 2))
    labels = _clusters.depth_bins(layers, 4)
    assert counts(layers, labels, 0, "conv3x3") == [7, 6, 6, 6]
    assert counts(layers, labels, 1, "conv3x3") == [4, 3, 3, 3]
    assert counts(layers, labels, 0, "conv1x1") == [3]
    assert len(set(labels)) == 5
    for kind in ("conv3x3", "conv1x1"):
        for member in (0, 1):
            run = [
                k
                for x, k in zip(layers, labels, strict=True)
                if x.member == member and x.kind == kind
            ]
            assert run == sorted(run)


def test_a_small_net_has_fewer_bins_and_none_means_one_per_layer(wrn_layers) -> None:
    layers = wrn_layers((16, 1), (10, 1))
    assert counts(layers, _clusters.depth_bins(layers, 4), 1, "conv3x3") == [3, 2, 2]
    alone = _clusters.depth_bins(layers, None)
    deep, flat = ([k for x, k in zip(layers, alone, strict=True) if x.member == m] for m in (0, 1))
    assert len({*deep}) == len(deep)
    assert len({*flat}) == len(flat)
    assert {*flat} <= {*deep}


def test_splitting_by_similarity_refines_and_stays_inside() -> None:
    labels = [0, 0, 1, 0, 1]
    three = np.array([[1, 0.5, -0.5], [0.5, 1, -0.5], [-0.5, -0.5, 1]])
    two = np.array([[1, -0.2], [-0.2, 1]])
    assert split(labels, {0: three, 1: two}, 0.1) == [0, 0, 2, 1, 3]
    assert split(labels, {0: three, 1: two}, -1.1) == labels


def test_other_members_follow_the_most_similar_layer_of_the_first() -> None:
    layers = [Layer(member, "x", "linear", 2, 2, ()) for member in (0, 0, 1, 1)]
    nan = float("nan")
    similarity = np.array(
        [[1, -0.5, 0.2, nan], [-0.5, 1, 0.7, nan], [0.2, 0.7, 1, nan], [nan, nan, nan, nan]]
    )
    leaders = _clusters.reference_leaders(layers, [0] * 4, {0: similarity})
    assert leaders == {2: 1, 3: 0}
    assert split([0] * 4, {0: similarity}, 0.1, following=leaders) == [0, 1, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_random_clusters_have_the_same_sizes_within_the_same_bins(seed: int) -> None:
    within = [0] * 6 + [1] * 4
    labels = [0, 0, 0, 1, 1, 2, 3, 3, 4, 4]
    new = _clusters.shuffled(labels, within, np.random.default_rng(seed))
    for part in (slice(0, 6), slice(6, 10)):
        assert sorted(Counter(new[part]).values()) == sorted(Counter(labels[part]).values())
    assert not set(new[:6]) & set(new[6:])
    assert new != labels


def test_merging_stops_as_soon_as_the_budget_fits(wrn_layers) -> None:
    layers = wrn_layers((16, 1), (10, 1))
    labels = _clusters.depth_bins(layers, 4)

    def least(these: list[int]) -> int:
        return least_weights(layers, these)

    assert _clusters.merge_to_fit(layers, labels, least, least(labels)) == _clusters.numbered(
        labels
    )
    merged = _clusters.merge_to_fit(layers, labels, least, least(labels) - 1)
    assert least(merged) < least(labels)
    assert len(set(merged)) == len(set(labels)) - 1
    nothing = _clusters.merge_to_fit(layers, labels, least, 1)
    kinds = {(layer.kind, label) for layer, label in zip(layers, nothing, strict=True)}
    assert len(kinds) == len(set(nothing)) == 2


@pytest.mark.parametrize(
    ("depth", "width", "num", "size"),
    [(28, 10, 28, 36_454_832), (16, 7, 16, 8_385_200), (10, 1, 9, 76_720), (22, 1, 21, 270_256)],
)
def test_a_wide_resnet_shares_all_its_convolutions(
    depth: int, width: int, num: int, size: int
) -> None:
    with torch.device("meta"):
        net = WideResNet(depth=depth, width=width).build((3, 32, 32), 100)
    layers = layers_of(net, 0)
    assert (len(layers), sum(layer.size for layer in layers)) == (num, size)
    for layer in layers:
        assert net.get_submodule(layer.name).weight.shape == layer.shape


def test_kinds_keep_linear_kernels_and_groups_apart() -> None:
    with torch.device("meta"):
        digits = layers_of(DigitsCnn().build((1, 8, 8), 10), 0)
        mobile = layers_of(MobileNetV2().build((3, 32, 32), 10), 1)
    assert [layer.kind for layer in digits] == ["conv3x3", "conv3x3", "linear"]
    assert {layer.kind for layer in mobile} == {"conv3x3", "conv1x1", "grouped3x3"}
    assert digits[2].shape == (64, 128)
    assert digits[2].fan_in == 128
    assert digits[1].fan_in == 16 * 9


def test_a_layer_whose_weight_is_tied_is_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    net[1].weight = net[0].weight
    with pytest.raises(ConfigError, match=r"`0.weight`, `1.weight` of member 3 are one"):
        layers_of(net, 3)
    assert [layer.name for layer in layers_of(net, 3, ["2"])] == ["2"]
