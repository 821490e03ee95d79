"""Arms compared at another count than the end, beside a slow reading of the same steps."""

import numpy as np
import pandas as pd
import pytest

from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.results import compare
from tuneparts.results.metadata import ArmMetadata
from tuneparts.results.on_the_way import at_cost, parse, told
from tuneparts.results.run_data import RunData
from tuneparts.results.select import check

SEEDS = (0, 1, 2, 3)
REPORTS = (100, 200, 300, 400)
ARMS = {"alternating": 1, "searched": 3}
"""Trials of a seed; the first arm updates its weights in every second pass."""


@pytest.fixture
def run(metadata) -> RunData:
    rng = np.random.default_rng(7)
    trials, steps = [], []
    for arm, num in ARMS.items():
        for seed in SEEDS:
            for index in range(num):
                own = {"trial": f"{arm}/{seed}/{index}", "arm": arm, "seed": seed, "index": index}
                for passes in REPORTS:
                    values = {
                        "cost/passes": passes,
                        "cost/weight_steps": passes // 2 if arm == "alternating" else passes,
                        "val/accuracy": rng.uniform(),
                        "test/accuracy": rng.uniform(),
                    }
                    steps += [
                        {**own, "metric": name, "step": passes, "time": 0.0, "value": value}
                        for name, value in values.items()
                    ]
                end = {**values, "test/nll": 0.5, "outcome": "finished", "error": ""}
                trials.append({**own, **end})
    arms = tuple(ArmMetadata(arm, "standard", n, SEEDS, passes=400) for arm, n in ARMS.items())
    described = type(metadata)(**{**metadata.__dict__, "arms": arms})
    data = RunData(described, pd.DataFrame(trials), pd.DataFrame(steps))
    check(data.trials, described)
    return data


def slowly(run: RunData, count: int) -> dict[tuple[str, int], float]:
    """Test accuracy by arm and seed of the trial that validation preferred at that count."""
    found = {}
    for arm, num in ARMS.items():
        for seed in SEEDS:
            best = (-1.0, 0.0)
            for index in range(num):
                rows = run.steps[run.steps["trial"] == f"{arm}/{seed}/{index}"]
                last = None
                for passes in REPORTS:
                    here = rows[rows["step"] == passes].set_index("metric")["value"]
                    if here["cost/weight_steps"] <= count:
                        last = here
                assert last is not None
                best = max(best, (last["val/accuracy"], last["test/accuracy"]))
            found[arm, seed] = best[1]
    return found


@pytest.mark.parametrize("count", [100, 150, 200, 399])
def test_trials_are_read_and_selected_at_the_count(run: RunData, count: int) -> None:
    chosen = at_cost(run, "cost/weight_steps", count, needs="test/accuracy").selected
    scores = {(r["arm"], r["seed"]): r["test/accuracy"] for r in chosen.to_dict("records")}
    assert scores == slowly(run, count)


def test_the_whole_run_at_its_last_count_is_the_run(run: RunData) -> None:
    found = at_cost(run, "cost/weight_steps", 400, needs="test/accuracy").selected
    columns = ["trial", "test/accuracy", "val/accuracy", "cost/passes"]
    pd.testing.assert_frame_equal(found[columns], run.selected[columns], check_dtype=False)


def test_a_cost_before_the_first_report_is_refused_with_it(run: RunData) -> None:
    with pytest.raises(DataMissingError, match=r"first report of .* is at 50"):
        at_cost(run, "cost/weight_steps", 49, needs="test/accuracy")


def test_what_is_known_at_the_end_only_is_kept_apart(run: RunData) -> None:
    found = at_cost(run, "cost/weight_steps", 200, needs="test/accuracy")
    assert set(found.trials["cost/passes"]) == {200.0, 400.0}
    assert "test/nll" not in found.trials
    with pytest.raises(DataMissingError, match=r"`test/nll`.*score_test_always"):
        at_cost(run, "cost/weight_steps", 200, needs="test/nll")


def test_a_run_without_steps_is_refused(run: RunData) -> None:
    bare = RunData(run.metadata, run.trials, run.steps.iloc[:0])
    with pytest.raises(DataMissingError, match="no step of rotated_digits has"):
        at_cost(bare, "cost/passes", 200, needs="test/accuracy")


def test_a_run_with_steps_of_selected_trials_only_is_refused(run: RunData) -> None:
    steps = run.steps[run.steps["trial"].isin(run.selected["trial"])]
    with pytest.raises(DataMissingError, match="8 of 16 have no steps, as `searched/0/"):
        at_cost(RunData(run.metadata, run.trials, steps), "cost/passes", 200, needs="test/accuracy")


def test_passes_need_no_column_of_their_own(run: RunData) -> None:
    steps = run.steps[run.steps["metric"] != "cost/passes"]
    bare = RunData(run.metadata, run.trials, steps)
    found = [
        at_cost(one, "cost/passes", 250, needs="test/accuracy").selected for one in (run, bare)
    ]
    pd.testing.assert_frame_equal(*found, check_like=True)


def test_before_the_first_report_of_an_arm_there_is_nothing_to_compare(run: RunData) -> None:
    early = at_cost(run, "cost/weight_steps", 60, needs="test/accuracy")
    with pytest.raises(ConfigError, match="no selected trial of `searched`"):
        compare.compare(early.selected, run.metadata, [("alternating", "searched")])


def test_it_says_where_arms_were_read(run: RunData) -> None:
    found = at_cost(run, "cost/weight_steps", 250, needs="test/accuracy")
    text = told(found, list(ARMS), "cost/weight_steps", 250)
    assert "at most 250 weight steps: alternating 200, searched 200." in text


@pytest.mark.parametrize("text", ["1200", "weight_steps", "epochs=3", "passes=-1", "passes=nan"])
def test_a_cost_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=COUNT"):
        parse(text)
