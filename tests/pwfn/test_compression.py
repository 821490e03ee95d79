import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.pwfn.compression import measure


def literal_entropy(values: list[float]) -> float:
    counts = Counter(values).values()
    return -sum(n / len(values) * math.log2(n / len(values)) for n in counts)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([0.0, -0.0, 0.5, -0.5, 0.25, 1.0]), min_size=1), st.randoms())
def test_against_counting(values: list[float], random: object) -> None:
    result = measure(torch.tensor(values))
    without = [value for value in values if value != 0]
    assert result.num_unique == len(set(values))
    assert result.entropy == pytest.approx(literal_entropy(values), abs=1e-12)
    nonzero = literal_entropy(without) if without else 0.0
    assert result.entropy_nonzero == pytest.approx(nonzero, abs=1e-12)
    assert result.sparsity == pytest.approx(1 - len(without) / len(values))
    assert measure(torch.tensor(values[::-1])) == result
    if len(without) == len(values):
        assert result.entropy == result.entropy_nonzero


@pytest.mark.parametrize("num", [1, 2, 8, 37])
def test_constant_and_uniform(num: int) -> None:
    assert measure(torch.full((num,), 0.5)).entropy == 0
    uniform = measure(torch.arange(1.0, num + 1).repeat(3))
    assert uniform.entropy == pytest.approx(math.log2(num))
    assert uniform.num_unique == num
