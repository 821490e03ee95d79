"""Scores over cost: curves, trials and the best of n, from frames with a known answer."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.results.figures import _progress
from tuneparts.results.figures._progress import (
    MOST_TRIALS,
    accuracy,
    best_of_n,
    curves,
    equivalents,
    expected_best,
    over_seeds,
)
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _select, _summarise
from tuneparts.search.card import ArmCard, RunCard

NAN = float("nan")
NO_STEPS = pd.DataFrame(columns=["trial", "arm", "seed", "index", "metric", "step", "value"])


def row(arm, seed, index, outcome, *scores):
    keys = {"run_id": "r", "trial": f"{arm}/seed{seed}/{index:05d}", "arm": arm, "seed": seed}
    names = ("val/accuracy", "test/accuracy", "cost/steps")
    values = dict(zip(names, scores, strict=True))
    return {**keys, "index": index, "outcome": outcome, "error": "", **values}


def test_incumbents_by_hand():
    metadata = RunCard("s", "q", (ArmCard("a", "m", 4, (0,)),), metric="val/accuracy")
    trials = pd.DataFrame(
        [
            row("a", 0, 0, "finished", 0.5, 0.6, 10),
            row("a", 0, 1, "failed", NAN, NAN, 4),
            row("a", 0, 2, "finished", 0.4, 0.9, 10),
            row("a", 0, 3, "finished", 0.8, 0.7, 10),
        ]
    )
    curve = curves(RunData(metadata, trials, NO_STEPS), "test/accuracy")
    points = list(zip(curve["steps"], curve["value"], strict=True))
    assert points == [(10, 0.6), (24, 0.6), (34, 0.7)]  # never the 0.9 that validation missed


@settings(max_examples=30, deadline=None)
@given(scores=st.lists(st.sampled_from([0.1, 0.2, 0.3, NAN]), min_size=1, max_size=6))
def test_incumbents_are_what_selection_would_choose_at_each_time(scores):
    metadata = RunCard("s", "q", (ArmCard("a", "m", 7, (0,)),), metric="val/accuracy")
    rows = [row("a", 0, i, "finished", val, i, 10) for i, val in enumerate(scores)]
    expected = []
    for count in range(1, len(rows) + 1):
        chosen = _select(pd.DataFrame(rows[:count]), metadata)
        expected += [(10 * count, value) for value in chosen["test/accuracy"]]
    curve = curves(RunData(metadata, pd.DataFrame(rows), NO_STEPS), "test/accuracy")
    assert list(zip(curve["steps"], curve["value"], strict=True)) == expected


def test_follower_starts_at_the_end_of_its_leaders_bill():
    arms = (
        ArmCard("lead", "m", 1, (0, 1)),
        ArmCard("tail", "m", 1, (0, 1), source="lead"),
    )
    trials = pd.DataFrame(
        [row("lead", s, 0, "finished", NAN, 0.8, 10 + s) for s in (0, 1)]
        + [row("tail", s, 0, "finished", NAN, 0.9, 5) for s in (0, 1)]
    )
    curve = curves(RunData(RunCard("s", "q", arms), trials, NO_STEPS), "test/accuracy")
    assert list(curve["steps"]) == [10, 11, 15, 16]


def test_over_seeds_holds_the_last_value_and_waits_for_every_seed():
    rows = [("a", 0, 10.0, 0.2), ("a", 0, 30.0, 0.6), ("a", 1, 20.0, 0.4)]
    mean = over_seeds(pd.DataFrame(rows, columns=["arm", "seed", "steps", "value"]))
    assert list(mean["steps"]) == [20.0, 30.0]
    assert list(mean["mean"]) == pytest.approx([0.3, 0.5])
    assert list(mean["se"]) == pytest.approx([0.1, 0.1])


def test_ends_are_the_tables_means(trials, steps, metadata):
    data = over_seeds(curves(RunData(metadata, trials, steps), "test/accuracy"))
    ends = data.groupby("arm")["mean"].last()
    table = _summarise(trials, metadata).set_index("arm")["test/accuracy"]
    for arm in table.index:
        assert ends[arm] == pytest.approx(table[arm], abs=1e-12)


def test_every_arm_is_named_once(trials, steps, metadata):
    figure = accuracy(RunData(metadata, trials, steps)).figure
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert shown == [arm.name for arm in metadata.arms]
    assert figure.layout.xaxis.type == "log"


def test_scores_against_seconds(trials, steps, metadata) -> None:
    data = RunData(metadata, trials, steps)
    by_seconds, by_steps = (
        accuracy(data, "test/accuracy", f"cost/{n}") for n in ("seconds", "steps")
    )
    assert "seconds" in by_seconds.title
    one, other = (d.data.groupby("arm")["mean"].last().to_dict() for d in (by_seconds, by_steps))
    assert one == other  # the end is the same, only the axis differs


def test_every_trial_is_there_whatever_became_of_it(trials, steps, metadata):
    drawing = _progress.trials(RunData(metadata, trials, steps), "test/accuracy")
    assert set(drawing.data["trial"]) == set(trials["trial"])
    assert "random/seed1/00003" in set(drawing.data["trial"])  # the failed one
    (line,) = [t for t in drawing.figure.data if t.name == "random"]
    gaps = sum(x is None for x in line.x)
    assert gaps == (trials["arm"] == "random").sum()
    assert "newest" not in drawing.caption


def test_a_running_search_has_lines_before_anything_finished(trials, steps, metadata):
    running = trials.assign(outcome="running", status="RUNNING")
    drawing = _progress.trials(RunData(metadata, running, steps))
    assert set(drawing.data["arm"]) == {"random"}  # the one with the selection metric
    assert drawing.figure.layout.yaxis.title.text == "val accuracy ↑"


def test_of_many_trials_the_newest_are_drawn(trials, steps, metadata):
    one = steps[(steps["trial"] == "random/seed0/00000") & (steps["metric"] == "val/accuracy")]
    many = pd.concat(
        one.assign(trial=f"random/seed0/{i:05d}", index=i, time=one["time"] + 1000 * i)
        for i in range(MOST_TRIALS + 7)
    )
    rows = pd.concat(
        trials.iloc[[3]].assign(trial=f"random/seed0/{i:05d}", index=i)
        for i in range(MOST_TRIALS + 7)
    )
    drawing = _progress.trials(RunData(metadata, rows, many))
    assert set(drawing.data["trial"]) == {
        f"random/seed0/{i:05d}" for i in range(7, MOST_TRIALS + 7)
    }
    assert f"newest {MOST_TRIALS}" in drawing.caption


def run_data_of(one_score):
    arms = (ArmCard("random", "m", 3, (0,)), ArmCard("one", "m", 1, (0,)))
    rows = [row("random", 0, i, "finished", v, v, 10.0) for i, v in enumerate((0.3, 0.9, 0.6))]
    rows.append(row("one", 0, 0, "finished", np.nan, one_score, 10.0))
    metadata = RunCard("s", "q", arms, metric="val/accuracy")
    return RunData(metadata, pd.DataFrame(rows), pd.DataFrame())


def test_curve_by_hand():
    own = expected_best(run_data_of(0.5), "test/accuracy")
    assert list(own["mean"]) == pytest.approx([0.6, 0.8, 0.9])  # (0.9 + 0.9 + 0.6) / 3 for n = 2
    assert list(own["steps"]) == [10, 20, 30]


@pytest.mark.parametrize(
    ("score", "says", "steps"),
    [(0.5, "at most 1", 10.0), (0.7, "2", 20.0), (0.95, "more than 3", np.nan)],
)
def test_equivalents_by_hand(score, says, steps):
    run_data = run_data_of(score)
    found_curve = expected_best(run_data, "test/accuracy")
    (found,) = equivalents(run_data, "test/accuracy", found_curve).to_dict("records")
    assert (found["arm"], found["against"], found["says"]) == ("one", "random", says)
    assert found["steps"] == pytest.approx(steps, nan_ok=True)
    assert found["own_steps"] == 10


def with_arms(run_data, *arms):
    return replace(run_data, metadata=replace(run_data.metadata, arms=arms))


def test_trials_that_depend_on_each_other_make_no_curve():
    random, one = run_data_of(0.5).metadata.arms
    run_data = with_arms(run_data_of(0.5), replace(random, is_adaptive=True), one)
    assert expected_best(run_data, "test/accuracy").empty


def test_an_arm_that_follows_a_selecting_one_is_not_set_against_it():
    random, one = run_data_of(0.5).metadata.arms
    run_data = with_arms(run_data_of(0.5), random, replace(one, source="random"))
    assert equivalents(run_data, "test/accuracy", expected_best(run_data, "test/accuracy")).empty


def test_a_failed_trial_makes_each_usable_one_dearer():
    run_data = run_data_of(0.5)
    failed = pd.DataFrame([row("random", 0, 3, "failed", np.nan, np.nan, 10.0)])
    run_data = replace(run_data, trials=pd.concat([run_data.trials, failed], ignore_index=True))
    own = expected_best(run_data, "test/accuracy")
    assert own["steps"].iloc[0] == pytest.approx(40 / 3)


def test_end_is_the_tables_mean_where_seeds_are_whole(trials, steps, metadata):
    arms = [replace(arm, seeds=(0,)) for arm in metadata.arms]
    run_data = with_arms(RunData(metadata, trials[trials["seed"] == 0], steps), *arms)
    end = expected_best(run_data, "test/accuracy")["mean"].iloc[-1]
    assert end == pytest.approx(run_data.summary.set_index("arm")["test/accuracy"]["random"])
    drawing = accuracy(run_data)  # one seed has no band
    assert drawing.data["se"].isna().all()
    assert all(not trace.x for trace in drawing.figure.data if trace.fill)


def test_the_legend_says_the_equivalent(trials, steps, metadata):
    names = [trace.name for trace in best_of_n(RunData(metadata, trials, steps)).figure.data]
    assert "none: at most 1 random trial (95 % interval 1 to 1)" in names
    # The shortest seed finished seven.
    assert "retrained: more than 7 random trials (95 % interval 4 to more than 7)" in names
