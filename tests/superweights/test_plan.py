"""The allocations of the released code, number for number, where it keeps its budget."""

import pytest

from tuneparts.errors import ConfigError
from tuneparts.superweights.clusters import depth_bins
from tuneparts.superweights.plan import least_weights, make_plan

FOUR = ((28, 10),) * 4
MIXED = ((34, 8), (28, 12), (28, 10), (28, 8))


@pytest.mark.parametrize(
    ("members", "bins", "budget", "spent", "counts"),
    [
        (((28, 7), (28, 4), (16, 7), (16, 4)), 4, 18_000_000, 17_997_568, (1, 8)),
        (((28, 7), (28, 4), (28, 3)), 4, 18_000_000, 17_997_568, (1, 8)),
        (FOUR, 4, 36_500_000, 36_480_432, (4, 8)),
        (FOUR, 4, 15_000_000, 14_999_904, (1, 8)),
        (FOUR, 4, 120_000_000, 69_836_800, (8, 8)),
        (FOUR, None, 36_500_000, 36_498_816, (1, 8)),
        (FOUR, None, 120_000_000, 119_993_216, (3, 8)),
        (MIXED, 4, 36_500_000, 36_499_888, (1, 6)),
        (((28, 10),), 4, 12_200_000, 12_185_600, (1, 8)),
    ],
)
def test_template_weights_of_published_settings(
    wrn_layers, members, bins, budget, spent, counts
) -> None:
    layers = wrn_layers(*members)
    plan = make_plan(layers, depth_bins(layers, bins), budget=budget)
    templates = [k for cluster in plan.clusters for k in cluster.templates]
    assert plan.num_weights == spent
    assert (min(templates), max(templates)) == counts


@pytest.mark.parametrize(
    ("members", "bins", "least"),
    [
        (FOUR, 4, 8_729_600),
        (MIXED, 4, 15_206_400),
        (MIXED, 2, 9_566_208),
        (MIXED, 1, 8_239_104),
        (((10, 1),) * 4, 4, 50_432),
        (((16, 2), (16, 1), (10, 2), (10, 1)), 4, 201_728),
    ],
)
def test_a_budget_below_the_least_is_refused_by_name(wrn_layers, members, bins, least) -> None:
    layers = wrn_layers(*members)
    labels = depth_bins(layers, bins)
    assert least_weights(layers, labels) == least
    with pytest.raises(ConfigError, match=f"takes {least} weights, but is {least - 1}"):
        make_plan(layers, labels, budget=least - 1)
    assert make_plan(layers, labels, budget=least).num_weights == least


def test_users_of_a_slot_are_the_layers_that_reach_it(wrn_layers) -> None:
    layers = wrn_layers((16, 2), (10, 1))
    plan = make_plan(layers, depth_bins(layers, 4), budget=700_000)
    assert sorted(p for c in plan.clusters for p in c.layers) == list(range(len(layers)))
    for cluster in plan.clusters:
        for slot in range(len(cluster.templates)):
            expected = {
                p
                for p in cluster.layers
                if cluster.chain.last_slot[layers[p].num_out, layers[p].num_in] >= slot
            }
            assert set(cluster.users(slot)) == expected
    assert len(plan.outline().splitlines()) == len(plan.slots)
