import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights._allocation import (
    Chain,
    assemble,
    build_chain,
    disassemble,
    least_weights,
    make_plan,
    split_budget,
)
from tuneparts.methods.superweights._clusters import depth_bins

SHAPES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)
AREAS = st.sampled_from([1, 9])


def parts_of(chain: Chain, last: int, num_uses: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = chain.sizes[: last + 1]
    return [torch.randn(num_uses, d, generator=generator, dtype=torch.float64) for d in sizes]


def naive(chain: Chain, parts: list[torch.Tensor], shape: tuple[int, int]) -> torch.Tensor:
    """One use, one entry at a time: columns of the rows that exist first, then whole rows."""
    entries: dict[tuple[int, int, int], float] = {}
    for slot, part in zip(chain.slots, parts, strict=False):
        entries = {k: v for k, v in entries.items() if k[0] < slot.rows and k[1] < slot.columns}
        values = iter(part.tolist())
        for row in range(slot.rows):
            for column in range(slot.columns, slot.shape[1]):
                for pixel in range(chain.area):
                    entries[row, column, pixel] = next(values)
        for row in range(slot.rows, slot.shape[0]):
            for column in range(slot.shape[1]):
                for pixel in range(chain.area):
                    entries[row, column, pixel] = next(values)
        assert next(values, None) is None
    weight = torch.full((*shape, chain.area), math.nan, dtype=torch.float64)
    for (row, column, pixel), value in entries.items():
        if row < shape[0] and column < shape[1]:
            weight[row, column, pixel] = value
    return weight


@settings(max_examples=60, deadline=None)
@given(SHAPES, AREAS, st.sampled_from(["growth", "envelope"]))
def test_assembled_weights_equal_the_entry_by_entry_reference(shapes, area, kind) -> None:
    chain = build_chain(shapes, area, kind)
    assert min(chain.sizes) > 0
    for shape in shapes:
        parts = parts_of(chain, chain.last_slot[shape])
        weight = assemble(chain, parts, shape)
        assert weight.shape == (2, *shape, area)
        for use in range(2):
            assert torch.equal(weight[use], naive(chain, [p[use] for p in parts], shape))


@settings(max_examples=60, deadline=None)
@given(SHAPES, AREAS, st.sampled_from(["growth", "envelope"]))
def test_disassembling_is_the_adjoint_that_autograd_finds(shapes, area, kind) -> None:
    chain = build_chain(shapes, area, kind)
    for shape in shapes:
        parts = [p.requires_grad_() for p in parts_of(chain, chain.last_slot[shape])]
        weight = assemble(chain, parts, shape)
        gradient = torch.randn(
            weight.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        expected = torch.autograd.grad(weight, parts, gradient, materialize_grads=True)
        for ours, theirs in zip(disassemble(chain, gradient), expected, strict=True):
            assert torch.equal(ours, theirs)


@settings(max_examples=60, deadline=None)
@given(SHAPES, AREAS)
def test_an_envelope_chain_is_as_large_as_its_largest_corner(shapes, area) -> None:
    chain = build_chain(shapes, area, "envelope")
    assert sum(chain.sizes) == area * max(o for o, _ in shapes) * max(i for _, i in shapes)
    large = assemble(chain, parts_of(chain, len(chain.slots) - 1), chain.slots[-1].shape)
    for shape in shapes:
        small = assemble(chain, parts_of(chain, chain.last_slot[shape]), shape)
        assert torch.equal(small, large[:, : shape[0], : shape[1]])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5), AREAS)
def test_a_monotone_growth_chain_nests_and_wastes_nothing(steps, area) -> None:
    shapes = [(1, 1)]
    for more_out, more_in in steps:
        shapes.append((shapes[-1][0] + more_out, shapes[-1][1] + more_in))
    chain = build_chain(shapes, area, "growth")
    assert chain == build_chain(shapes, area, "envelope")
    assert sum(chain.sizes) == area * math.prod(shapes[-1])


def test_a_shrinking_dimension_is_cropped_on_the_way() -> None:
    shapes = [(64, 64), (128, 64), (112, 112)]
    chain = build_chain(shapes, 9, "growth")
    assert [slot.rows for slot in chain.slots] == [0, 64, 112]
    assert chain.sizes == [64 * 64 * 9, 64 * 64 * 9, 112 * 48 * 9]
    parts = parts_of(chain, 2, num_uses=1)
    wide = assemble(chain, parts[:2], (128, 64))
    last = assemble(chain, parts, (112, 112))
    assert torch.equal(last[:, :, :64], wide[:, :112])


SLOTS = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 12)), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(SLOTS, st.integers(0, 20_000), st.integers(1, 10))
def test_templates_never_exceed_the_budget(slots, budget, cap) -> None:
    sizes, uses = zip(*slots, strict=True)
    least = sum(sizes)
    if budget < least:
        with pytest.raises(ConfigError, match=str(least)):
            split_budget(sizes, uses, budget=budget, max_templates=cap)
        return
    templates = split_budget(sizes, uses, budget=budget, max_templates=cap)
    spent = sum(k * d for k, d in zip(templates, sizes, strict=True))
    assert spent <= budget
    assert all(1 <= k <= cap for k in templates)
    # Nothing that is still wanted would have fitted into the rest.
    assert all(d > budget - spent for k, d in zip(templates, sizes, strict=True) if k < cap)


@pytest.mark.parametrize(
    ("sizes", "uses", "budget", "templates"),
    [
        ([10, 10], [1, 2], 30, [1, 2]),  # one more fits: it goes where two layers use it
        ([10, 10], [1, 1], 30, [2, 1]),
        ([100, 10], [5, 5], 150, [1, 5]),  # what does not fit is passed over
    ],
)
def test_users_come_before_spares(sizes, uses, budget, templates) -> None:
    assert split_budget(sizes, uses, budget=budget) == templates


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
