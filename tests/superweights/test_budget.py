import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.errors import ConfigError
from tuneparts.superweights.budget import split_budget

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


@settings(max_examples=50, deadline=None)
@given(SLOTS, st.integers(1, 8))
def test_an_endless_budget_fills_every_slot(slots, cap) -> None:
    sizes, uses = zip(*slots, strict=True)
    assert split_budget(sizes, uses, budget=10**9, max_templates=cap) == [cap] * len(sizes)


def test_users_come_before_spares() -> None:
    # One more template of 10 fits: it goes to the second slot, which has two users.
    assert split_budget([10, 10], [1, 2], budget=30) == [1, 2]
    assert split_budget([10, 10], [1, 1], budget=30) == [2, 1]


def test_a_slot_that_does_not_fit_is_passed_over() -> None:
    assert split_budget([100, 10], [5, 5], budget=150) == [1, 5]
