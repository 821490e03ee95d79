import math

import numpy as np
import pytest

from tuneparts.errors import ConfigError
from tuneparts.reports.ranks import ranks, table
from tuneparts.reports.rendering import to_markdown


def test_ranks_by_hand():
    found = ranks(
        {"x": {"a": 0.9, "b": 0.8, "c": 0.7}, "y": {"b": 0.6, "a": 0.5, "c": 0.5}},
        larger_is_better=True,
    )
    assert found.arms == ("a", "b", "c")
    np.testing.assert_array_equal(found.ranks_TA, [[1, 2, 3], [2.5, 1, 2.5]])
    np.testing.assert_array_equal(found.means, [1.75, 1.5, 2.75])


def test_smaller_is_better_turns_them_round():
    found = ranks({"x": {"a": 1.0, "b": 2.0}}, larger_is_better=False)
    np.testing.assert_array_equal(found.ranks_TA, [[1, 2]])


def test_an_arm_without_a_score_somewhere_is_left_out():
    scores = {"x": {"a": 1.0, "b": 2.0, "c": 3.0}, "y": {"a": 1.0, "b": 2.0, "c": math.nan}}
    assert ranks(scores, larger_is_better=True).arms == ("a", "b")


def test_too_little_in_common_is_refused():
    with pytest.raises(ConfigError, match="at least two arms"):
        ranks({"x": {"a": 1.0, "b": 1.0}, "y": {"b": 1.0, "c": 1.0}}, larger_is_better=True)
    with pytest.raises(ConfigError, match="at least one task"):
        ranks({}, larger_is_better=True)


def test_friedman_by_hand():
    # Three arms always in the same order on four tasks: chi square 8 with two degrees of freedom.
    scores = {f"t{i}": {"a": 3.0, "b": 2.0, "c": 1.0} for i in range(4)}
    assert ranks(scores, larger_is_better=True).friedman == pytest.approx(math.exp(-4))
    assert math.isnan(ranks({"t": {"a": 1.0, "b": 2.0}}, larger_is_better=True).friedman)


@pytest.fixture
def run_data(scored):
    def make(scores):
        return scored({arm: {0: s, 1: s + 0.01} for arm, s in scores.items()}, digest="d1")

    return make


def test_the_table_puts_the_best_arm_first_and_names_what_it_left_out(run_data):
    runs = [
        ("one", run_data({"a": 0.5, "b": 0.7, "c": 0.6, "only": 0.1})),
        ("two", run_data({"a": 0.1, "b": 0.3, "c": 0.2})),
    ]
    text = to_markdown([table(runs, "test/accuracy")])
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row.split("|")[1].strip() for row in rows] == ["b", "c", "a"]
    assert "| 1.00 |" in rows[0]
    assert "**0.7050 ± 0.0050 (1)**" in rows[0]
    assert "**" not in rows[1] + rows[2]
    assert "left out: only" in text
    assert "one d1, two d1" in text
