"""Several runs as one benchmark."""

from typing import Any

import numpy as np
import pytest

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results.page import benchmark_page
from tuneparts.results.ranks import _Benchmark, _interquartile_mean, collect, table
from tuneparts.results.rendering import to_markdown

METRIC = "test/accuracy"


@pytest.fixture
def run_data(scored):
    def make(scores, **metadata):
        by_arm = {arm: {0: s, 1: s + 0.01, 2: s + 0.005} for arm, s in scores.items()}
        return scored(by_arm, digest="d1", **metadata)

    return make


def of(*scores: list[list[float]], larger: bool = True, **fields: Any) -> _Benchmark:
    arrays = tuple(np.array(one) for one in scores)
    names = tuple("abcdefghij"[: arrays[0].shape[1]])
    tasks = {f"t{i}": array for i, array in enumerate(arrays)}
    return _Benchmark(METRIC, names, tasks, larger_is_better=larger, **fields)


def test_ranks_by_hand() -> None:
    found = of([[0.9, 0.8, 0.7]], [[0.5, 0.6, 0.5]])
    np.testing.assert_array_equal(found.ranks, [[1, 2, 3], [2.5, 1, 2.5]])
    np.testing.assert_array_equal(of([[1.0, 2.0]], larger=False).ranks, [[1, 2]])


def test_the_interquartile_mean_is_that_of_a_fine_grid() -> None:
    scores = np.random.default_rng(0).random((7, 2))
    grid = np.sort(np.repeat(scores, 400, axis=0), axis=0)  # the middle half, counted out
    np.testing.assert_allclose(_interquartile_mean(scores), grid[700:2100].mean(axis=0))


def test_scores_lie_between_the_references(run_data) -> None:
    scores = {"none": 0.2, "a": 0.3, "b": 0.6, "oracle": 0.7}
    found = collect([("one", run_data(scores, references=("none", "oracle")))], METRIC)
    assert found.references
    assert found.arms == ("a", "b")
    np.testing.assert_allclose(found.scaled["one"].mean(axis=0), [0.2, 0.8])
    raw = collect([("one", run_data({"a": 0.3, "b": 0.6}))], METRIC)
    assert not raw.references


def test_a_task_without_references_counts_by_rank_and_not_on_their_scale(run_data) -> None:
    scores = {"none": 0.2, "a": 0.3, "b": 0.6, "oracle": 0.7}
    runs = [
        ("one", run_data(scores, references=("none", "oracle"))),
        ("two", run_data({"none": 0.1, "a": 0.6, "b": 0.3}, references=("none",))),
    ]
    found = collect(runs, METRIC)
    assert list(found.scaled) == ["one"]
    alone = collect(runs[:1], METRIC)
    assert found.interquartile_means() == alone.interquartile_means()
    np.testing.assert_array_equal(found.ranks, [[2, 1], [1, 2]])
    text = to_markdown([table(runs, found)])
    assert "the tasks that have both (1 of 2)" in text
    assert "0.6050 ± 0.0029 (1)" in text


def test_improvement_is_counted_within_replicates_and_every_task_counts_alike() -> None:
    """Against a slow count: two of four seeds and a tie, then one of one."""
    first = [[0.5, 0.6], [0.5, 0.4], [0.5, 0.6], [0.5, 0.5]]
    found = of(first, [[0.1, 0.9]], against="a").improvements()
    assert set(found) == {"b"}
    assert found["b"][0] == pytest.approx((2.5 / 4 + 1) / 2)
    assert found["b"][1].low <= found["b"][0] <= found["b"][1].high
    by_loss = of(first, [[0.1, 0.9]], against="a", larger=False).improvements()
    assert by_loss["b"][0] == pytest.approx((1.5 / 4 + 0) / 2)
    assert of(first).improvements() == {}


def test_improvement_is_over_the_arm_that_all_searches_compare_with(run_data) -> None:
    scores = {"a": 0.5, "b": 0.7, "c": 0.6}
    runs = [(task, run_data(scores, compare=("b", "a"))) for task in ("one", "two")]
    found = collect(runs, METRIC)
    assert found.against == "a"
    assert found.improvements()["b"][0] == 1.0
    assert "better than a" in to_markdown([table(runs, found)])
    assert collect(runs, METRIC, against="c").against == "c"
    with pytest.raises(UnknownNameError, match="arm that all tasks share"):
        collect(runs, METRIC, against="d")
    other = ("three", run_data(scores, compare=("a", "b")))
    assert collect([*runs, other], METRIC).against is None
    assert collect([*runs, ("three", run_data(scores))], METRIC).against is None


def test_references_in_the_wrong_order_are_no_scale(run_data) -> None:
    scores = {"none": 0.7, "a": 0.3, "b": 0.6, "oracle": 0.2}
    runs = [("one", run_data(scores, references=("none", "oracle")))]
    found = collect(runs, METRIC)
    assert not found.references
    np.testing.assert_array_equal(found.ranks, [[2, 1]])
    assert "of which the second is better" in to_markdown([table(runs, found)])
    references = {"references": ("none", "oracle"), "metric": "test/nll"}
    by_loss = collect([("one", run_data(scores, **references))], "test/nll")
    assert by_loss.references
    np.testing.assert_array_equal(by_loss.ranks, [[1, 2]])


def test_two_seeds_have_no_interval(scored) -> None:
    runs = [("one", scored({"a": {0: 0.3, 1: 0.4}, "b": {0: 0.5, 1: 0.6}}, digest="d1"))]
    text = to_markdown([table(runs, collect(runs, METRIC))])
    assert "2 seeds, too few for an interval" in text
    assert " to " not in text.split("Interquartile means")[0]


def test_the_interval_is_over_tasks_and_replicates_and_holds_the_mean() -> None:
    rng = np.random.default_rng(3)
    tasks = [(rng.normal(0.5, 0.1) + rng.normal(0, 0.02, (5, 2))).tolist() for _ in range(4)]
    found = of(*tasks).interquartile_means()
    alone = of(tasks[0]).interquartile_means()
    for arm in "ab":
        mean, span = found[arm]
        assert span.low < mean < span.high
        # Tasks differ more than seeds, so one task alone has the narrower interval.
        assert span.high - span.low > alone[arm][1].high - alone[arm][1].low


def test_too_little_in_common_is_refused(run_data) -> None:
    one, other = run_data({"a": 0.1, "b": 0.2}), run_data({"b": 0.1, "c": 0.2})
    with pytest.raises(ConfigError, match="at least two arms"):
        collect([("one", one), ("two", other)], METRIC)
    with pytest.raises(ConfigError, match="at least one"):
        collect([], METRIC)


def test_the_table_puts_the_best_arm_first_and_says_what_is_left_out(run_data) -> None:
    runs = [
        ("one", run_data({"a": 0.5, "b": 0.7, "c": 0.6, "only": 0.1})),
        ("two", run_data({"a": 0.1, "b": 0.3, "c": 0.2}, data_draws="drawn")),
    ]
    found = collect(runs, METRIC)
    shown = table(runs, found)
    text = to_markdown([shown])
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row.split("|")[1].strip() for row in rows] == ["b", "c", "a"]
    assert "**0.7050 ± 0.0029 (1)**" in rows[0]
    assert "are left out: only" in text
    assert "draw their data anew" in text
    assert "Interquartile means" in benchmark_page(shown)
