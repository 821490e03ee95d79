import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.methods.pwfn.config import FRACTIONS, cut
from tuneparts.methods.pwfn.quantisers import quota


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 10**5),
    st.floats(0, 0.9),
    st.floats(0, 0.09),
    st.floats(0, 3),
    st.integers(1, 12),
)
def test_the_budget_is_cut_without_loss(
    passes: int, pretrain: float, warmup: float, first_round: float, num_rounds: int
) -> None:
    rounds = cut(
        passes, pretrain=pretrain, warmup=warmup, first_round=first_round, num_rounds=num_rounds
    )
    edges = [0, rounds.pretrain_end, rounds.warmup_end, *rounds.ends]
    assert edges == sorted(edges)
    assert len(rounds.ends) == num_rounds
    assert rounds.ends[-1] == passes


def test_the_published_schedule() -> None:
    # 27.05 epochs of 176 steps: a twentieth of one, then nine rounds of three.
    rounds = cut(round(27.05 * 176), pretrain=0, warmup=0, first_round=1 / 60, num_rounds=10)
    assert rounds.ends[0] == round(0.05 * 176)
    lengths = [b - a for a, b in zip(rounds.ends, rounds.ends[1:], strict=False)]
    assert all(abs(length - 3 * 176) <= 1 for length in lengths)
    assert FRACTIONS[-1] == 1


def test_one_round_without_a_relative_length() -> None:
    assert cut(10, pretrain=0.5, warmup=0, first_round=0, num_rounds=1).ends == (10,)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**8), st.integers(0, 1000))
def test_quotas_are_exact_in_decimal(num: int, thousandths: int) -> None:
    assert quota(num, thousandths / 1000) == math.ceil(Fraction(thousandths, 1000) * num)
    assert quota(100, 0.07) == 7
