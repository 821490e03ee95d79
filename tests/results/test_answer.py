from dataclasses import replace

import pytest

from tuneparts.results.answer import answer
from tuneparts.results.run_data import RunData


@pytest.fixture
def answered(scored):
    def make(scores, metric="test/accuracy", seeds=None):
        run_data = scored(scores, metric, seeds)
        return answer(run_data.verdict(metric), run_data.summary)

    return make


def test_a_clear_winner(answered):
    text = answered({"a": {0: 0.9, 1: 0.92, 2: 0.91}, "b": {0: 0.8, 1: 0.81, 2: 0.82}})
    assert text.startswith("a has the highest mean test accuracy, 0.9100 ± 0.0058 (3 seeds)")
    assert "ahead of b" in text
    assert "difference 0.1000, 95 % interval 0.0752 to 0.1248, paired over 3 seeds" in text
    assert "10 passes per seed against 10" in text
    assert "failed" not in text


def test_an_interval_with_zero_claims_nothing(answered):
    text = answered(
        {
            "a": {0: 0.9, 1: 0.7, 2: 0.8},
            "b": {0: 0.7, 1: 0.88, 2: 0.79},
            "c": {0: 0.8, 1: 0.75, 2: 0.7},
            "d": {0: 0.1, 1: 0.11, 2: 0.12},
        }
    )
    assert "cannot be told apart from b" in text
    assert "(nor from c" in text
    assert "ahead" not in text


def test_more_arms_make_a_claim_harder(answered):
    a, b = {0: 0.90, 1: 0.92, 2: 0.91}, {0: 0.88, 1: 0.895, 2: 0.895}
    assert "is ahead of b" in answered({"a": a, "b": b})
    far = {f"c{i}": {0: 0.1, 1: 0.2, 2: 0.15} for i in range(8)}
    text = answered({"a": a, "b": b, **far})
    assert "cannot be told apart from b" in text
    assert "95 % interval (jointly over 9 comparisons)" in text


def test_one_seed_claims_nothing(answered):
    text = answered({"a": {0: 0.9}, "b": {0: 0.1}})
    assert "one replicate says nothing" in text
    assert "±" not in text


def test_unmatched_seeds_use_welch(answered):
    text = answered({"a": {0: 0.9, 1: 0.91, 5: 0.9}, "b": {2: 0.1, 3: 0.12, 4: 0.11}})
    assert "Welch" in text


def test_smaller_is_better_where_the_schema_says_so(answered):
    text = answered({"a": {0: 0.9, 1: 0.8}, "b": {0: 0.1, 1: 0.2}}, metric="test/nll")
    assert text.startswith("b has the lowest mean test nll")


def test_failures_are_in_the_sentence(answered):
    text = answered(
        {"a": {0: 0.9, 1: 0.92, 2: None}, "b": {0: 0.8, 1: 0.81, 2: 0.8}, "c": {0: None, 1: None}},
        seeds=(0, 1, 2),
    )
    assert "(2 of 3 seeds)" in text
    assert "of 9 trials 3 failed, 1 missing" in text
    assert "no result from c" in text


def test_lone_and_empty(answered):
    assert "there is no other arm" in answered({"a": {0: 0.9, 1: 0.91}})
    assert "no other arm has any" in answered({"a": {0: 0.9}, "b": {0: None}})
    assert answered({"a": {0: None}}).startswith("No answer")


def test_running_trials_are_said(trials, steps, metadata):
    trials.loc[trials["arm"] == "none", "outcome"] = ""
    assert "3 not finished" in RunData(metadata, trials, steps).answer


def test_cost_includes_the_leader(trials, steps, metadata):
    short = replace(metadata, arms=(metadata.arms[0], *metadata.arms[2:]))
    text = RunData(short, trials[trials["arm"] != "random"], steps).answer
    assert text.startswith("retrained has the highest")
    assert "at 800 passes per seed against 400" in text


def test_an_uncertain_arm_further_behind_is_named(answered):
    text = answered(
        {
            "a": {0: 0.9, 1: 0.92, 2: 0.91},
            "b": {0: 0.8, 1: 0.81, 2: 0.82},
            "c": {0: 0.99, 1: 0.4, 2: 0.7},
        }
    )
    assert "is ahead of b" in text
    assert "it cannot be told apart from c" in text


def test_an_arm_with_one_seed_allows_no_comparison(answered):
    a, b = {0: 0.9, 1: 0.92, 2: 0.91}, {0: 0.8, 1: 0.82, 2: 0.805}
    text = answered({"a": a, "b": b, "c": {0: 0.1}})
    assert "is ahead of b" in text
    assert "too few replicates of c allow no comparison" in text


def test_two_replicates_say_nothing(answered):
    text = answered({"a": {0: 0.9, 1: 0.92}, "b": {0: 0.1, 1: 0.12}})
    assert text.endswith("two replicates say nothing.")
    assert "interval" not in text


def test_no_interval_leaves_what_the_metric_can_be(answered):
    text = answered({"a": {0: 1.0, 1: 0.2, 2: 0.9}, "b": {0: 0.0, 1: 0.9, 2: 0.1}})
    assert "95 % interval -1.0000 to 1.0000" in text


def test_of_many_arms_alike_the_first_are_named(answered):
    arms = {f"arm{i}": {0: 0.5, 1: 0.6, 2: 0.55 + 0.001 * i} for i in range(9)}
    assert "arm6, arm5, arm4 and 4 more" in answered(arms)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_equal_arms_are_never_a_win(answered, order):
    text = answered({name: {0: 0.5, 1: 0.6, 2: 0.7} for name in order})
    assert f"cannot be told apart from {order[1]}" in text
