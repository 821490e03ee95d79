"""The contrast that a search declares: first sentence of the answer, section of the page."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from tuneparts.results.page import page
from tuneparts.results.run_data import RunData
from tuneparts.search import load

THREE = {"a": {0: 0.9, 1: 0.92, 2: 0.91}, "b": {0: 0.8, 1: 0.81, 2: 0.82}}


def declared(run_data: RunData, **fields) -> RunData:
    return RunData(replace(run_data.metadata, **fields), run_data.trials, run_data.steps)


def test_the_first_sentence_is_the_contrast_and_the_second_the_best_arm(scored) -> None:
    data = scored(
        {**THREE, "none": {0: 0.5, 1: 0.52, 2: 0.51}, "oracle": {0: 0.99, 1: 0.98, 2: 0.97}}
    )
    text = declared(data, compare=("b", "a"), references=("none", "oracle")).answer
    first, second = text.split(". ", 1)
    assert first.startswith("test accuracy of b - a is -0.1000 (95 % interval -0.1248 to -0.0752")
    assert "paired over 3 replicates): b is worse than a" in first
    assert "for reference: none 0.5100, oracle 0.9800" in first
    assert second.startswith("a has the highest")  # a reference does not compete
    assert "oracle" not in second


def test_the_difference_of_the_best_pair_is_told_once(scored) -> None:
    data = scored({**THREE, "c": {0: 0.91, 1: 0.7, 2: 0.5}, "none": {0: 0.5, 1: 0.52, 2: 0.51}})
    told = declared(data, compare=("a", "b"), references=("none",)).answer
    assert told.count("interval") == told.count("0.1000") == 1
    assert told.split(". ")[1].startswith("a has the highest mean test accuracy, 0.9100 ")
    assert ", before b, 0.8100 " in told
    assert told.endswith("; it cannot be told apart from c.")
    other = declared(data, compare=("b", "c"), references=("none",)).answer
    assert "a has the highest" in other
    assert other.count("interval") == 2  # of another pair


def test_two_replicates_say_nothing(scored) -> None:
    data = scored({"a": {0: 0.9, 1: 0.92}, "b": {0: 0.1, 1: 0.12}})
    text = declared(data, compare=("a", "b")).answer
    assert "two replicates say nothing" in text.split(". ")[0]
    assert text.count("nothing") == 1
    assert "interval" not in text


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
    assert headings == ["The comparison that answers the question", "All other arms beside random"]
    assert "The comparison that answers the question" in page(data, {})
    bare = RunData(metadata, trials, steps).comparisons
    assert [table.heading for table in bare] == ["All arms beside random"]


def test_a_contrast_names_arms_and_leaves_the_digest_alone() -> None:
    search = load.load("rotated_digits", scale="smoke")
    assert search.compare == ("partitioned_retrained", "random")
    plain = search.replaced({"compare": (), "answer": "difference"})
    assert plain.digest == search.digest
    assert load.load("rotated_digits", scale="smoke", arms=["none"]).compare == ()
    with pytest.raises(ValidationError, match="names two arms"):
        type(search).model_validate({**search.model_dump(), "compare": ("partitioned", "gone")})
    with pytest.raises(ValidationError, match="set `compare`"):
        type(search).model_validate({**search.model_dump(), "compare": ()})
