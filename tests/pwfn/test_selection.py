import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.pwfn.selection import smallest


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_as_a_stable_sort_selects(values: list[int], data: st.DataObject) -> None:
    num = data.draw(st.integers(0, len(values)))
    order = sorted(range(len(values)), key=lambda i: values[i])[:num]
    expected = [i in order for i in range(len(values))]
    assert smallest(torch.tensor(values, dtype=torch.float64), num).tolist() == expected
