import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.errors import ConfigError, DataError
from tuneparts.results.select import _select, _summarise
from tuneparts.search.card import ArmCard, RunCard


def row(arm, seed, index, outcome="finished", **metrics):
    metrics = {name.replace("_", "/", 1): value for name, value in metrics.items()}
    error = "boom" if outcome == "failed" else ""
    keys = {"run_id": f"{arm}{seed}{index}", "trial": f"{arm}/seed{seed}/{index:05d}"}
    state = {"status": outcome.upper(), "outcome": outcome, "error": error}
    return {**keys, "arm": arm, "seed": seed, "index": index, **state, **metrics}


def metadata_of(*arms, metric="val/accuracy"):
    return RunCard("s", "q?", arms, metric=metric)


PAIR = metadata_of(ArmCard("a", "m", 3, (0, 1)))


def pair_frame():
    return pd.DataFrame(
        [
            row("a", 0, 0, val_accuracy=0.5, test_accuracy=0.9, cost_steps=10, cost_seconds=1.0),
            row("a", 0, 1, val_accuracy=0.7, test_accuracy=0.6, cost_steps=10, cost_seconds=1.0),
            row("a", 0, 2, val_accuracy=0.7, test_accuracy=0.8, cost_steps=10, cost_seconds=1.0),
            row("a", 1, 0, "stopped", val_accuracy=0.99, cost_steps=4, cost_seconds=0.5),
            row("a", 1, 1, "failed", cost_steps=2, cost_seconds=0.2),
            row("a", 1, 2, val_accuracy=0.6, test_accuracy=0.8, cost_steps=10, cost_seconds=1.0),
        ]
    )


def test_best_by_validation_among_finished_ties_by_index():
    chosen = _select(pair_frame(), PAIR)
    assert list(chosen["trial"]) == ["a/seed0/00001", "a/seed1/00002"]


def test_direction_comes_from_the_schema():
    frame = pair_frame().rename(columns={"val/accuracy": "val/nll"})
    chosen = _select(frame, metadata_of(PAIR.arms[0], metric="val/nll"))
    assert list(chosen["index"]) == [0, 2]


def test_summary_by_hand():
    (summary,) = _summarise(pair_frame(), PAIR).to_dict("records")
    assert summary["test/accuracy"] == pytest.approx(0.7)
    assert summary["test/accuracy:se"] == pytest.approx(0.1)  # std(0.6, 0.8) / sqrt(2)
    assert summary["val/accuracy"] == pytest.approx(0.65)
    assert summary["test/accuracy:n"] == 2
    assert [summary[k] for k in ("expected", "finished", "stopped", "failed")] == [6, 4, 1, 1]
    assert summary["missing"] == 0
    assert summary["steps"] == pytest.approx((30 + 16) / 2)
    assert summary["seconds"] == pytest.approx((3.0 + 1.7) / 2)
    assert summary["first_error"] == "boom"


def test_the_total_cost_includes_that_of_the_source_arm():
    arms = (
        ArmCard("lead", "m", 2, (0, 1)),
        ArmCard("tail", "m", 1, (0, 1), source="lead"),
    )
    frame = pd.DataFrame(
        [row("lead", s, i, val_accuracy=0.5, cost_steps=10 + s) for s in (0, 1) for i in (0, 1)]
        + [row("tail", s, 0, cost_steps=5) for s in (0, 1)]
    )
    lead, tail = _summarise(frame, metadata_of(*arms)).to_dict("records")
    assert lead["steps"] == lead["total_steps"] == 21
    assert (tail["steps"], tail["total_steps"]) == (5, 26)


def test_one_trial_per_seed_needs_no_metric():
    frame = pd.DataFrame([row("a", 0, 0, test_accuracy=0.9)])
    metadata = metadata_of(ArmCard("a", "m", 1, (0,)), metric="")
    assert list(_select(frame, metadata)["test/accuracy"]) == [0.9]
    twice = pd.concat([frame, pd.DataFrame([row("a", 0, 1, test_accuracy=0.8)])], ignore_index=True)
    with pytest.raises(ConfigError, match="metric"):
        _select(twice, metadata)


def test_finished_without_the_metric_is_counted_not_selected():
    frame = pair_frame()
    frame.loc[frame["seed"] == 0, "val/accuracy"] = np.nan
    (summary,) = _summarise(frame, PAIR).to_dict("records")
    assert (summary["unscored"], summary["seeds"], summary["seeds_expected"]) == (3, 1, 2)
    assert summary["test/accuracy"] == 0.8


def test_arm_without_any_row_is_missing_altogether():
    frame = pair_frame().iloc[:0]
    (summary,) = _summarise(frame, PAIR).to_dict("records")
    assert (summary["missing"], summary["seeds"]) == (6, 0)
    assert math.isnan(summary["test/accuracy"])
    assert math.isnan(summary["steps"])


def test_missing_in_one_seed_is_not_made_up_by_another():
    frame = pair_frame()
    frame.loc[frame["index"] == 2, "index"] = 7
    extra = row("a", 0, 8, val_accuracy=0.1, test_accuracy=0.1)
    frame = pd.concat([frame[frame.trial != "a/seed1/00001"], pd.DataFrame([extra])])
    (summary,) = _summarise(frame.reset_index(drop=True), PAIR).to_dict("records")
    assert summary["missing"] == 1


def test_strangers_and_doubles_are_refused():
    with pytest.raises(DataError, match="seed 9"):
        _select(pair_frame().replace({"seed": {1: 9}}), PAIR)
    with pytest.raises(DataError, match="several"):
        _select(pd.concat([pair_frame(), pair_frame().iloc[:1]], ignore_index=True), PAIR)


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(6)))
def test_order_of_rows_changes_nothing(order):
    shuffled = pair_frame().iloc[list(order)]
    pd.testing.assert_frame_equal(_summarise(shuffled, PAIR), _summarise(pair_frame(), PAIR))


@settings(max_examples=15, deadline=None)
@given(val=st.floats(0, 1), test=st.floats(0, 1), seed=st.sampled_from([0, 1]))
def test_a_failed_trial_changes_the_count_and_no_mean(val, test, seed):
    metadata = metadata_of(ArmCard("a", "m", 4, (0, 1)))
    extra = row("a", seed, 3, "failed", val_accuracy=val, test_accuracy=test, cost_steps=3)
    more = pd.concat([pair_frame(), pd.DataFrame([extra])], ignore_index=True)
    (before,), (after,) = (_summarise(f, metadata).to_dict("records") for f in (pair_frame(), more))
    assert after["failed"] == before["failed"] + 1
    assert after["missing"] == before["missing"] - 1
    assert after["steps"] == pytest.approx(before["steps"] + 1.5)
    for name in ("test/accuracy", "test/accuracy:se", "val/accuracy", "seeds", "finished"):
        assert after[name] == before[name]
