import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.search.events import TrialId
from tuneparts.tracking.card import LONGEST_VALUE, SearchCard, decode, encode, flatten, view_state

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(JSON)
def test_decode_inverts_encode(value: Any) -> None:
    assert decode(encode(value)) == value
    assert type(decode(encode(value))) is type(value)


def test_words_stay_bare_and_numbers_in_quotes_stay_words() -> None:
    assert encode("mlp") == "mlp"
    assert decode(encode("1")) == "1"
    assert decode(encode("NaN")) == "NaN"
    assert decode(encode(1)) == 1


def test_paths_are_joined_with_dots() -> None:
    config = {"lr": 0.1, "net": {"name": "mlp", "deep": {"widths": [8, 4]}}, "extra": {}}
    assert flatten(config) == {
        "lr": "0.1",
        "net.name": "mlp",
        "net.deep.widths": "[8, 4]",
        "extra": "{}",
    }


def test_keys_that_mlflow_refuses_are_mended() -> None:
    assert flatten({"a[0]=b": 1}) == {"a_0__b": "1"}


def test_long_values_are_cut() -> None:
    for value in ("x" * 7000, list(range(7000))):
        text = encode(value)
        assert len(text) == LONGEST_VALUE
        assert text.endswith("...")


def test_a_search_that_runs_says_so_and_one_that_ended_answers(card: SearchCard) -> None:
    running = card.search_note("3", "abc", None)
    done = card.search_note("3", "abc", "random is ahead.")
    assert "tuneparts dashboard" in running
    assert "random is ahead." in done
    assert (
        "(#/experiments/3/runs/abc/artifacts/report/report.html?workflowType=machine_learning)"
        in done
    )
    assert "artifacts/" not in running


def test_a_trial_points_to_the_report_of_its_search(card: SearchCard) -> None:
    text = card.trial_note("3", "abc", TrialId("random", 7, 2))
    assert "Trial 2 of arm `random`, seed 7" in text
    assert (
        "(#/experiments/3/runs/abc/artifacts/report/report.html?workflowType=machine_learning)"
        in text
    )


def test_the_view_groups_trials_by_arm() -> None:
    state = json.loads(view_state())
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "arm"}]
    assert state["searchFilter"] == "tags.`tuneparts.kind` = 'trial'"
