import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.superweights.chain import Chain, assemble, build_chain, disassemble

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


def test_the_chain_of_a_wide_resnet_stage() -> None:
    chain = build_chain([(16, 3), (112, 16), (112, 112)], 9, "growth")
    assert chain.sizes == [432, 13 * 16 * 9 + 96 * 16 * 9, 96 * 112 * 9]


def test_a_shrinking_dimension_is_cropped_on_the_way() -> None:
    shapes = [(64, 64), (128, 64), (112, 112)]
    chain = build_chain(shapes, 9, "growth")
    assert [slot.rows for slot in chain.slots] == [0, 64, 112]
    assert chain.sizes == [64 * 64 * 9, 64 * 64 * 9, 112 * 48 * 9]
    parts = parts_of(chain, 2, num_uses=1)
    wide = assemble(chain, parts[:2], (128, 64))
    last = assemble(chain, parts, (112, 112))
    assert torch.equal(last[:, :, :64], wide[:, :112])


@pytest.mark.parametrize("kind", ["growth", "envelope"])
def test_the_order_of_shapes_does_not_matter(kind) -> None:
    shapes = [(32, 32), (64, 16), (16, 16), (32, 32)]
    assert build_chain(shapes, 9, kind) == build_chain(shapes[::-1], 9, kind)
