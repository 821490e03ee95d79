import numpy as np
import pandas as pd
import pytest

from tuneparts.results.figures.best_of_n import best_of_n, curve, equivalents
from tuneparts.results.figures.drawing import Note
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard, RunCard


def row(arm, seed, index, val, test, *, outcome="finished"):
    keys = {"run_id": "r", "trial": f"{arm}/seed{seed}/{index:05d}", "arm": arm, "seed": seed}
    scores = {"val/accuracy": val, "test/accuracy": test, "cost/passes": 10.0}
    return {**keys, "index": index, "outcome": outcome, "error": "", **scores}


def run_data_of(one_score):
    arms = (ArmCard("random", "m", 3, (0,)), ArmCard("one", "m", 1, (0,)))
    rows = [row("random", 0, i, v, v) for i, v in enumerate((0.3, 0.9, 0.6))]
    rows.append(row("one", 0, 0, np.nan, one_score))
    metadata = RunCard("s", "q", arms, metric="val/accuracy")
    return RunData(metadata, pd.DataFrame(rows), pd.DataFrame())


def test_curve_by_hand():
    own = curve(run_data_of(0.5), "test/accuracy")
    assert list(own["mean"]) == pytest.approx([0.6, 0.8, 0.9])  # (0.9 + 0.9 + 0.6) / 3 for n = 2
    assert list(own["passes"]) == [10, 20, 30]


@pytest.mark.parametrize(
    ("score", "says", "passes"),
    [(0.5, "at most 1", 10.0), (0.7, "2", 20.0), (0.95, "more than 3", np.nan)],
)
def test_equivalents_by_hand(score, says, passes):
    run_data = run_data_of(score)
    curves = curve(run_data, "test/accuracy")
    (found,) = equivalents(run_data, "test/accuracy", curves).to_dict("records")
    assert (found["arm"], found["against"], found["says"]) == ("one", "random", says)
    assert found["passes"] == pytest.approx(passes, nan_ok=True)
    assert found["own_passes"] == 10


def test_trials_that_depend_on_each_other_make_no_curve():
    run_data = run_data_of(0.5)
    adaptive = ArmCard("random", "m", 3, (0,), is_adaptive=True)
    metadata = RunCard("s", "q", (adaptive, run_data.metadata.arms[1]), metric="val/accuracy")
    assert curve(RunData(metadata, run_data.trials, pd.DataFrame()), "test/accuracy").empty


def test_an_arm_that_follows_a_selecting_one_is_not_set_against_it():
    run_data = run_data_of(0.5)
    after = ArmCard("one", "m", 1, (0,), follows="random")
    metadata = RunCard("s", "q", (run_data.metadata.arms[0], after), metric="val/accuracy")
    run_data = RunData(metadata, run_data.trials, pd.DataFrame())
    assert equivalents(run_data, "test/accuracy", curve(run_data, "test/accuracy")).empty


def test_a_failed_trial_makes_each_usable_one_dearer():
    run_data = run_data_of(0.5)
    arms = (ArmCard("random", "m", 4, (0,)), run_data.metadata.arms[1])
    failed = row("random", 0, 3, np.nan, np.nan, outcome="failed")
    trials = pd.concat([run_data.trials, pd.DataFrame([failed])], ignore_index=True)
    metadata = RunCard("s", "q", arms, metric="val/accuracy")
    own = curve(RunData(metadata, trials, pd.DataFrame()), "test/accuracy")
    assert own["passes"].iloc[0] == pytest.approx(40 / 3)


def test_end_is_the_tables_mean_where_seeds_are_whole(trials, steps, metadata):
    whole = trials[trials["seed"] == 0]
    one = RunCard(
        "s",
        "q",
        tuple(ArmCard(a.name, "m", a.trials_per_seed, (0,)) for a in metadata.arms),
        metric="val/accuracy",
    )
    run_data = RunData(one, whole, steps)
    end = curve(run_data, "test/accuracy")["mean"].iloc[-1]
    assert end == pytest.approx(run_data.summary.set_index("arm")["test/accuracy"]["random"])


def test_the_legend_says_the_equivalent(trials, steps, metadata):
    names = [trace.name for trace in best_of_n(RunData(metadata, trials, steps)).figure.data]
    assert "none: at most 1 random trial (95 % interval 1 to 1)" in names
    # The shortest seed finished seven.
    assert "retrained: more than 7 random trials (95 % interval 4 to more than 7)" in names


def test_without_a_selecting_arm_a_note(trials, steps, metadata):
    fixed = RunCard("s", "q", metadata.arms[:1])
    run_data = RunData(fixed, trials[trials["arm"] == "none"], steps)
    assert isinstance(best_of_n(run_data), Note)
