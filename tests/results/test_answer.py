from dataclasses import replace

import pytest
from pydantic import ValidationError

from tuneparts.results.answer import best
from tuneparts.results.page import _page
from tuneparts.results.run_data import RunData
from tuneparts.search import load


@pytest.fixture
def answered(scored):
    def make(scores, metric="test/accuracy", seeds=None):
        run_data = scored(scores, metric, seeds)
        return best(run_data.verdict(metric), run_data.summary)

    return make


A, B = {0: 0.9, 1: 0.92, 2: 0.91}, {0: 0.8, 1: 0.81, 2: 0.82}


@pytest.mark.parametrize(
    ("scores", "said", "unsaid"),
    [
        (
            {"a": A, "b": B},
            [
                "a has the highest mean test accuracy, 0.9100 ± 0.0058 (3 seeds)",
                "ahead of b",
                "difference 0.1000, 95 % interval 0.0752 to 0.1248, paired over 3 seeds",
                "10 steps per seed against 10",
            ],
            ["failed"],
        ),
        ({"a": {0: 0.9}, "b": {0: 0.1}}, ["1 seed is too few for an interval"], ["±"]),
        (
            {"a": {0: 0.9, 1: 0.92}, "b": {0: 0.1, 1: 0.12}},
            ["2 seeds are too few for an interval."],
            ["95 %"],
        ),
        ({"a": {0: 0.9, 1: 0.91, 5: 0.9}, "b": {2: 0.1, 3: 0.12, 4: 0.11}}, ["Welch"], []),
        (
            {"a": A, "b": B, "c": {0: 0.99, 1: 0.4, 2: 0.7}},
            ["is ahead of b", "its comparison with c is inconclusive"],
            [],
        ),
        (
            {"a": A, "b": B, "c": {0: 0.1}},
            ["is ahead of b", "c: too few seeds for an interval"],
            [],
        ),
        (  # no interval leaves what the metric can be
            {"a": {0: 1.0, 1: 0.2, 2: 0.9}, "b": {0: 0.0, 1: 0.9, 2: 0.1}},
            ["95 % interval -1.0000 to 1.0000"],
            [],
        ),
        (
            {f"arm{i}": {0: 0.5, 1: 0.6, 2: 0.55 + 0.001 * i} for i in range(9)},
            ["arm6, arm5, arm4 and 4 more"],
            [],
        ),
        ({"a": {0: 0.9, 1: 0.91}}, ["there is no other arm"], []),
        ({"a": {0: 0.9}, "b": {0: None}}, ["no other arm has any"], []),
        ({"a": {0: None}}, ["No answer"], []),
    ],
)
def test_sentences(answered, scores, said, unsaid):
    text = answered(scores)
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_an_interval_with_zero_claims_nothing(answered):
    text = answered(
        {
            "a": {0: 0.9, 1: 0.7, 2: 0.8},
            "b": {0: 0.7, 1: 0.88, 2: 0.79},
            "c": {0: 0.8, 1: 0.75, 2: 0.7},
            "d": {0: 0.1, 1: 0.11, 2: 0.12},
        }
    )
    assert "but its comparison with b, 0.7900 " in text
    assert " is inconclusive (also with c" in text
    assert "ahead" not in text


def test_more_arms_make_a_claim_harder(answered):
    a, b = {0: 0.90, 1: 0.92, 2: 0.91}, {0: 0.88, 1: 0.895, 2: 0.895}
    assert "is ahead of b" in answered({"a": a, "b": b})
    far = {f"c{i}": {0: 0.1, 1: 0.2, 2: 0.15} for i in range(8)}
    text = answered({"a": a, "b": b, **far})
    assert "its comparison with b, 0.8900 " in text
    assert "95 % interval (jointly over 9 comparisons)" in text


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


def test_running_trials_are_said(trials, steps, metadata):
    trials.loc[trials["arm"] == "none", "outcome"] = ""
    assert "3 not finished" in RunData(metadata, trials, steps).answer


def test_cost_includes_the_source_arm(trials, steps, metadata):
    short = replace(metadata, arms=(metadata.arms[0], *metadata.arms[2:]))
    text = RunData(short, trials[trials["arm"] != "random"], steps).answer
    assert text.startswith("retrained has the highest")
    assert "at 800 steps per seed against 400" in text


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_equal_arms_are_never_a_win(answered, order):
    text = answered({name: {0: 0.5, 1: 0.6, 2: 0.7} for name in order})
    assert f"its comparison with {order[1]}, 0.6000 " in text


THREE = {"a": A, "b": B}


def declared(run_data: RunData, **fields) -> RunData:
    return RunData(replace(run_data.metadata, **fields), run_data.trials, run_data.steps)


def test_the_first_sentence_is_the_contrast_and_the_second_the_best_arm(scored) -> None:
    data = scored(
        {**THREE, "none": {0: 0.5, 1: 0.52, 2: 0.51}, "oracle": {0: 0.99, 1: 0.98, 2: 0.97}}
    )
    text = declared(data, compare=("b", "a"), references=("none", "oracle")).answer
    first, second = text.split(". ", 1)
    assert first.startswith("test accuracy of b - a is -0.1000 (95 % interval -0.1248 to -0.0752")
    assert "paired over 3 seeds): b is worse than a" in first
    assert "for reference: none 0.5100, oracle 0.9800" in first
    assert second.startswith("a has the highest")  # a reference does not compete
    assert "oracle" not in second


def test_the_difference_of_the_best_pair_is_said_once(scored) -> None:
    data = scored({**THREE, "c": {0: 0.91, 1: 0.7, 2: 0.5}, "none": {0: 0.5, 1: 0.52, 2: 0.51}})
    told = declared(data, compare=("a", "b"), references=("none",)).answer
    assert told.count("interval") == told.count("0.1000") == 1
    assert told.split(". ")[1].startswith("a has the highest mean test accuracy, 0.9100 ")
    assert ", before b, 0.8100 " in told
    assert told.endswith("; its comparison with c is inconclusive.")
    other = declared(data, compare=("b", "c"), references=("none",)).answer
    assert "a has the highest" in other
    assert other.count("interval") == 2  # of another pair


def test_two_seeds_of_a_contrast_are_too_few(scored) -> None:
    data = scored({"a": {0: 0.9, 1: 0.92}, "b": {0: 0.1, 1: 0.12}})
    text = declared(data, compare=("a", "b")).answer
    assert "2 seeds are too few for an interval" in text.split(". ")[0]
    assert text.count("too few") == 1
    assert "95 %" not in text


def test_equivalence_is_said_where_it_is_shown(scored) -> None:
    data = scored({"a": {0: 0.9, 1: 0.8, 2: 0.7}, "b": {0: 0.9001, 1: 0.7999, 2: 0.7001}})
    text = declared(data, compare=("a", "b"), within=0.005).answer
    assert "a and b are equivalent within 0.005" in text


def test_trials_that_one_run_is_worth(trials, steps, metadata) -> None:
    asked = replace(metadata, compare=("partitioned", "random"), answer="equivalent_trials")
    text = RunData(asked, trials, steps).answer
    assert text.startswith(
        "One run of partitioned is worth 3 trials of random (95 % interval 2 to 6)"
    )


def test_what_was_found(trials, steps, metadata) -> None:
    asked = replace(
        metadata,
        compare=("partitioned", "random"),
        answer="found",
        found={"hyper/rotation": 3.1416},
    )
    text = RunData(asked, trials, steps).answer
    assert text.startswith("Rotation (rad): found by partitioned ")
    assert "where the data has 3.14" in text


def test_without_scores_of_both_arms_there_is_no_contrast(scored) -> None:
    data = scored({"a": {0: 0.9}, "b": {0: None}})
    assert declared(data, compare=("a", "b")).answer.startswith("a has test accuracy")


def test_the_page_has_the_verdicts(trials, steps, metadata) -> None:
    data = RunData(replace(metadata, compare=("partitioned", "random")), trials, steps)
    headings = [table.heading for table in data.comparisons]
    assert headings == [
        "The comparison that answers the question",
        "All other arms compared with random",
    ]
    assert "The comparison that answers the question" in _page(data, {})
    bare = RunData(metadata, trials, steps).comparisons
    assert [table.heading for table in bare] == ["All arms compared with random"]


def test_a_contrast_names_arms_and_leaves_the_digest_alone() -> None:
    search = load.load("rotated_digits", scale="smoke")
    assert search.compare == ("partitioned_retrained", "random")
    plain = search.replaced({"compare": (), "answer": "difference"})
    assert plain.digest == search.digest
    assert load.load("rotated_digits", scale="smoke", arms=["none"]).compare == ()
    with pytest.raises(ValidationError, match="name two arms"):
        type(search).model_validate({**search.model_dump(), "compare": ("partitioned", "gone")})
    with pytest.raises(ValidationError, match="set `compare`"):
        type(search).model_validate({**search.model_dump(), "compare": ()})
