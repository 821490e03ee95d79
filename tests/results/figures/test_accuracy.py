from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.results.figures.accuracy import accuracy, anytime, over_seeds
from tuneparts.results.figures.drawing import Note
from tuneparts.results.run_data import RunData
from tuneparts.results.select import select, summarise
from tuneparts.search.card import ArmCard, RunCard


def row(arm, seed, index, outcome, *scores):
    keys = {"run_id": "r", "trial": f"{arm}/seed{seed}/{index:05d}", "arm": arm, "seed": seed}
    names = ("val/accuracy", "test/accuracy", "cost/passes")
    values = dict(zip(names, scores, strict=True))
    return {**keys, "index": index, "outcome": outcome, "error": "", **values}


NAN = float("nan")
NO_STEPS = pd.DataFrame(columns=["trial", "arm", "seed", "index", "metric", "step", "value"])


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
    curve = anytime(RunData(metadata, trials, NO_STEPS), "test/accuracy")
    points = list(zip(curve["passes"], curve["value"], strict=True))
    assert points == [(10, 0.6), (24, 0.6), (34, 0.7)]  # never the 0.9 that validation missed


@settings(max_examples=30, deadline=None)
@given(scores=st.lists(st.sampled_from([0.1, 0.2, 0.3, NAN]), min_size=1, max_size=6))
def test_incumbents_are_what_selection_would_choose_at_each_time(scores):
    metadata = RunCard("s", "q", (ArmCard("a", "m", 7, (0,)),), metric="val/accuracy")
    rows = [row("a", 0, i, "finished", val, i, 10) for i, val in enumerate(scores)]
    expected = []
    for count in range(1, len(rows) + 1):
        chosen = select(pd.DataFrame(rows[:count]), metadata)
        expected += [(10 * count, value) for value in chosen["test/accuracy"]]
    curve = anytime(RunData(metadata, pd.DataFrame(rows), NO_STEPS), "test/accuracy")
    assert list(zip(curve["passes"], curve["value"], strict=True)) == expected


def test_follower_starts_at_the_end_of_its_leaders_bill():
    arms = (
        ArmCard("lead", "m", 1, (0, 1)),
        ArmCard("tail", "m", 1, (0, 1), follows="lead"),
    )
    trials = pd.DataFrame(
        [row("lead", s, 0, "finished", NAN, 0.8, 10 + s) for s in (0, 1)]
        + [row("tail", s, 0, "finished", NAN, 0.9, 5) for s in (0, 1)]
    )
    curve = anytime(RunData(RunCard("s", "q", arms), trials, NO_STEPS), "test/accuracy")
    assert list(curve["passes"]) == [10, 11, 15, 16]


def test_over_seeds_holds_the_last_value_and_waits_for_every_seed():
    rows = [("a", 0, 10.0, 0.2), ("a", 0, 30.0, 0.6), ("a", 1, 20.0, 0.4)]
    mean = over_seeds(pd.DataFrame(rows, columns=["arm", "seed", "passes", "value"]))
    assert list(mean["passes"]) == [20.0, 30.0]
    assert list(mean["mean"]) == pytest.approx([0.3, 0.5])
    assert list(mean["se"]) == pytest.approx([0.1, 0.1])


def test_ends_are_the_tables_means(trials, steps, metadata):
    curves = over_seeds(anytime(RunData(metadata, trials, steps), "test/accuracy"))
    ends = curves.groupby("arm")["mean"].last()
    table = summarise(trials, metadata).set_index("arm")["test/accuracy"]
    for arm in table.index:
        assert ends[arm] == pytest.approx(table[arm], abs=1e-12)


def test_every_arm_is_named_once(trials, steps, metadata):
    figure = accuracy(RunData(metadata, trials, steps)).figure
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert shown == [arm.name for arm in metadata.arms]
    assert figure.layout.xaxis.type == "log"


def test_one_seed_has_no_band(trials, steps, metadata):
    one = replace(metadata, arms=tuple(replace(arm, seeds=(0,)) for arm in metadata.arms))
    drawing = accuracy(RunData(one, trials[trials["seed"] == 0], steps[steps["seed"] == 0]))
    assert all(not trace.x for trace in drawing.figure.data if trace.fill)
    assert drawing.data["se"].isna().all()


def test_without_scores_a_note(trials, steps, metadata):
    assert isinstance(accuracy(RunData(metadata, trials.iloc[:0], steps.iloc[:0])), Note)


def test_scores_against_seconds(trials, steps, metadata) -> None:
    data = RunData(metadata, trials, steps)
    by_seconds, by_passes = (
        accuracy(data, "test/accuracy", f"cost/{n}") for n in ("seconds", "passes")
    )
    assert "seconds" in by_seconds.title
    one, other = (d.data.groupby("arm")["mean"].last().to_dict() for d in (by_seconds, by_passes))
    assert one == other  # the end is the same, only the axis differs
