"""Every SuperWeight network of the search files can be allocated, at every scale."""

import pytest
import torch

from tuneparts import Scale, Search
from tuneparts.methods.superweights._allocation import least_weights, make_plan
from tuneparts.methods.superweights._clusters import depth_bins, layers_of, merge_to_fit
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.search.load import load

CIFAR = (
    "budget",
    "ensembles",
    "thresholds",
    "anytime",
    "families",
    "cifar10",
    "efficient",
    "membership",
    "npas",
)
NAMES = (*CIFAR, "npas_imagenet")


def search(name: str, scale: Scale) -> Search:
    found: Search = load(f"superweights_{name}", scale=scale)
    return found


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_the_budget_holds_the_first_clusters(name: str, scale: Scale) -> None:
    configs = [arm.config for arm in search(name, scale).arms]
    shared = [config for config in configs if isinstance(config, SuperWeights)]
    assert shared
    seen = set()
    for config in shared:
        allocation = config.allocation
        key = (config.members, allocation, config.sharing.num_bins)
        if str(key) in seen:
            continue
        seen.add(str(key))
        in_shape = (3, 32, 32) if scale is Scale.PAPER else (1, 8, 8)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            nets = [net.build(in_shape, 10) for net in config.members]
        layers = [layer for member, net in enumerate(nets) for layer in layers_of(net, member)]

        def least(labels: list[int], layers=layers, chain=allocation.chain) -> int:
            return least_weights(layers, labels, chain)

        budget = allocation.budget
        if budget is None:
            assert len(nets) == 1
            budget = int(allocation.relative * sum(layer.size for layer in layers))
        labels = depth_bins(layers, config.sharing.num_bins)
        if allocation.when_short == "merge":
            labels = merge_to_fit(layers, labels, least, budget)
        plan = make_plan(layers, labels, budget=budget, chain=allocation.chain)
        assert 0.5 * budget < plan.num_weights <= budget


@pytest.mark.parametrize("name", CIFAR)
def test_published_epochs_are_whole_numbers_of_steps(name: str) -> None:
    epoch = 50_000 // 128
    for arm in search(name, Scale.PAPER).arms:
        if isinstance(arm.config, SuperWeights):
            times = arm.config.timetable
            assert times.finish - times.compare_uses + times.train - times.compare_layers == (
                200 * epoch
            )
            assert times.search in {0, 20 * epoch}
            is_released = arm.config.sharing.scope == "released"
            assert times.compare_layers - times.search in ({1} if is_released else {0, epoch})
            assert times.compare_uses - times.train in {0, epoch}
            assert times.train - times.compare_layers in {0, 10 * epoch}
