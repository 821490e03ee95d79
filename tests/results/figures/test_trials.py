import pandas as pd

from tuneparts.results.figures.drawing import Note
from tuneparts.results.figures.trials import MOST
from tuneparts.results.figures.trials import trials as draw_trials
from tuneparts.results.run_data import RunData


def test_every_trial_is_there_whatever_became_of_it(trials, steps, metadata):
    drawing = draw_trials(RunData(metadata, trials, steps), "test/accuracy")
    assert set(drawing.data["trial"]) == set(trials["trial"])
    assert "random/seed1/00003" in set(drawing.data["trial"])  # the failed one
    (line,) = [t for t in drawing.figure.data if t.name == "random"]
    gaps = sum(x is None for x in line.x)
    assert gaps == (trials["arm"] == "random").sum()
    assert "newest" not in drawing.caption


def test_a_running_search_has_lines_before_anything_finished(trials, steps, metadata):
    running = trials.assign(outcome="running", status="RUNNING")
    drawing = draw_trials(RunData(metadata, running, steps))
    assert set(drawing.data["arm"]) == {"random"}  # the one with the selection metric
    assert drawing.figure.layout.yaxis.title.text == "val accuracy ↑"


def test_of_many_trials_the_newest_are_drawn(trials, steps, metadata):
    one = steps[(steps["trial"] == "random/seed0/00000") & (steps["metric"] == "val/accuracy")]
    many = pd.concat(
        one.assign(trial=f"random/seed0/{i:05d}", index=i, time=one["time"] + 1000 * i)
        for i in range(MOST + 7)
    )
    rows = pd.concat(
        trials.iloc[[3]].assign(trial=f"random/seed0/{i:05d}", index=i) for i in range(MOST + 7)
    )
    drawing = draw_trials(RunData(metadata, rows, many))
    assert set(drawing.data["trial"]) == {f"random/seed0/{i:05d}" for i in range(7, MOST + 7)}
    assert f"newest {MOST}" in drawing.caption


def test_nothing_reported_gives_a_note(trials, steps, metadata):
    assert isinstance(draw_trials(RunData(metadata, trials, steps), "val/nll"), Note)
