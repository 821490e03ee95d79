import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
from tuneparts.tracking.card import VIEW_TAG, SearchCard, _decode, _encode, _flatten

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(JSON)
def test_decode_inverts_encode(value: Any) -> None:
    assert _decode(_encode(value)) == value
    assert type(_decode(_encode(value))) is type(value)


def test_a_config_becomes_params_that_mlflow_takes() -> None:
    config = {"lr": 0.1, "net": {"name": "mlp", "deep": {"widths": [8, 4]}}, "extra": {}}
    paths = {"lr": "0.1", "net.name": "mlp", "net.deep.widths": "[8, 4]", "extra": "{}"}
    assert _flatten(config) == paths
    assert _flatten({"a[0]=b": 1}) == {"a_0__b": "1"}
    assert (_encode("mlp"), _encode("1"), _encode("NaN"), _encode(1)) == (
        "mlp",
        '"1"',
        '"NaN"',
        "1",
    )
    for value in ("x" * 7000, list(range(7000))):
        text = _encode(value)
        assert len(text) == 6000
        assert text.endswith("...")


LINK = "(#/experiments/3/runs/abc/artifacts/report/report.html?workflowType=machine_learning)"


def test_a_search_that_runs_says_so_and_one_that_ended_answers() -> None:
    card = SearchCard(RunCard("toy", scale="smoke"))
    running = card.search_note("3", "abc", None)
    done = card.search_note("3", "abc", "random is ahead.")
    assert "tuneparts dashboard" in running
    assert "artifacts/" not in running
    assert "random is ahead." in done
    text = card.trial_note("3", "abc", TrialId("random", 7, 2))
    assert "Trial 2 of arm `random`, seed 7" in text
    assert LINK in done
    assert LINK in text


def test_the_view_groups_trials_by_arm() -> None:
    state = json.loads(SearchCard(RunCard("toy")).experiment_tags("3")[VIEW_TAG])
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "arm"}]
    assert state["searchFilter"] == "tags.`tuneparts.kind` = 'trial'"


def test_a_version_is_no_commit() -> None:
    tags = SearchCard(RunCard("toy", commit="v0.1.0")).parent_tags("k", Path("run"))
    assert not [name for name in tags if name.startswith("mlflow.")]
