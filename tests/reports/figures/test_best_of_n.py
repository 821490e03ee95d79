import numpy as np
import pandas as pd
import pytest

from tuneparts.reports.evidence import Evidence
from tuneparts.reports.figures.best_of_n import best_of_n, curve, equivalents
from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.outline import ArmOutline, Outline


def row(arm, seed, index, val, test, *, outcome="finished"):
    keys = {"run_id": "r", "trial": f"{arm}/seed{seed}/{index:05d}", "arm": arm, "seed": seed}
    scores = {"val/accuracy": val, "test/accuracy": test, "cost/passes": 10.0}
    return {**keys, "index": index, "outcome": outcome, "error": "", **scores}


def evidence_of(one_score):
    arms = (ArmOutline("random", "m", 3, (0,)), ArmOutline("one", "m", 1, (0,)))
    rows = [row("random", 0, i, v, v) for i, v in enumerate((0.3, 0.9, 0.6))]
    rows.append(row("one", 0, 0, np.nan, one_score))
    outline = Outline("s", "q", arms, metric="val/accuracy")
    return Evidence(outline, pd.DataFrame(rows), pd.DataFrame())


def test_curve_by_hand():
    own = curve(evidence_of(0.5), "test/accuracy")
    assert list(own["mean"]) == pytest.approx([0.6, 0.8, 0.9])  # (0.9 + 0.9 + 0.6) / 3 for n = 2
    assert list(own["passes"]) == [10, 20, 30]


@pytest.mark.parametrize(
    ("score", "says", "passes"),
    [(0.5, "at most 1", 10.0), (0.7, "2", 20.0), (0.95, "more than 3", np.nan)],
)
def test_equivalents_by_hand(score, says, passes):
    evidence = evidence_of(score)
    curves = curve(evidence, "test/accuracy")
    (found,) = equivalents(evidence, "test/accuracy", curves).to_dict("records")
    assert (found["arm"], found["against"], found["says"]) == ("one", "random", says)
    assert found["passes"] == pytest.approx(passes, nan_ok=True)
    assert found["own_passes"] == 10


def test_trials_that_depend_on_each_other_make_no_curve():
    evidence = evidence_of(0.5)
    adaptive = ArmOutline("random", "m", 3, (0,), is_adaptive=True)
    outline = Outline("s", "q", (adaptive, evidence.outline.arms[1]), metric="val/accuracy")
    assert curve(Evidence(outline, evidence.trials, pd.DataFrame()), "test/accuracy").empty


def test_an_arm_that_follows_a_selecting_one_is_not_set_against_it():
    evidence = evidence_of(0.5)
    after = ArmOutline("one", "m", 1, (0,), follows="random")
    outline = Outline("s", "q", (evidence.outline.arms[0], after), metric="val/accuracy")
    evidence = Evidence(outline, evidence.trials, pd.DataFrame())
    assert equivalents(evidence, "test/accuracy", curve(evidence, "test/accuracy")).empty


def test_a_failed_trial_makes_each_usable_one_dearer():
    evidence = evidence_of(0.5)
    arms = (ArmOutline("random", "m", 4, (0,)), evidence.outline.arms[1])
    failed = row("random", 0, 3, np.nan, np.nan, outcome="failed")
    trials = pd.concat([evidence.trials, pd.DataFrame([failed])], ignore_index=True)
    outline = Outline("s", "q", arms, metric="val/accuracy")
    own = curve(Evidence(outline, trials, pd.DataFrame()), "test/accuracy")
    assert own["passes"].iloc[0] == pytest.approx(40 / 3)


def test_end_is_the_tables_mean_where_seeds_are_whole(trials, steps, outline):
    whole = trials[trials["seed"] == 0]
    one = Outline(
        "s",
        "q",
        tuple(ArmOutline(a.name, "m", a.trials_per_seed, (0,)) for a in outline.arms),
        metric="val/accuracy",
    )
    evidence = Evidence(one, whole, steps)
    end = curve(evidence, "test/accuracy")["mean"].iloc[-1]
    assert end == pytest.approx(evidence.summary.set_index("arm")["test/accuracy"]["random"])


def test_the_legend_says_the_equivalent(trials, steps, outline):
    names = [trace.name for trace in best_of_n(Evidence(outline, trials, steps)).figure.data]
    assert "none: at most 1 random trial" in names
    assert "retrained: more than 7 random trials" in names  # the shortest seed finished seven


def test_without_a_selecting_arm_a_note(trials, steps, outline):
    fixed = Outline("s", "q", outline.arms[:1])
    evidence = Evidence(fixed, trials[trials["arm"] == "none"], steps)
    assert isinstance(best_of_n(evidence), Note)
