"""The schedule that a population found: in the steps, in a table and as a figure."""

from pathlib import Path

import pytest

from tuneparts.executors import Place, execute
from tuneparts.results import rendering
from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.gallery import draw
from tuneparts.results.results import Results
from tuneparts.results.run_data import RunData
from tuneparts.search import frames, runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.events import Row, TrialId, TrialStarted
from tuneparts.search.journal import Journal

A, B = TrialId("pbt", 0, 0), TrialId("pbt", 0, 1)


@pytest.fixture
def journal(tmp_path) -> Path:
    """B is copied by A after two rounds, with a value that A had before."""
    made = Journal(tmp_path / "journal.jsonl")

    def start(trial: TrialId, steps: int, lr: float, donor: TrialId | None = None) -> None:
        config = {"net": {"name": "mlp"}, "optimiser": {"lr": lr}}
        made.append(TrialStarted(trial, config, 1.0, steps, None if donor is None else str(donor)))

    start(A, 0, 0.1)
    start(B, 0, 0.5)
    start(B, 10, 0.4, donor=B)
    start(A, 20, 0.1, donor=B)
    for trial in (A, B):
        for step in (10, 20, 30):
            made.append(Row(trial, step, {"val/accuracy": step / 100}, 2.0))
    made.close()
    return made.path


def test_steps_say_under_which_value_they_were_made(journal) -> None:
    steps = frames.steps(journal, ["config/optimiser.lr"])
    assert steps[["index", "step", "value"]].values.tolist() == [
        [1, 10, 0.5],
        [1, 20, 0.4],
        [1, 30, 0.4],
    ]  # A had the same value throughout, though not with the same weights
    assert set(frames.steps(journal)["metric"]) == {"val/accuracy", "config/optimiser.lr"}


def test_a_schedule_follows_the_weights(journal) -> None:
    found = frames.schedules(journal)
    rows = found[["index", "steps", "trained_as", "path", "value"]].values.tolist()
    path = "optimiser.lr"
    assert rows == [
        [0, 0, str(B), path, 0.5],
        [0, 10, str(B), path, 0.4],
        [0, 20, str(A), path, 0.1],
        [1, 0, str(B), path, 0.5],
        [1, 10, str(B), path, 0.4],
    ]


def test_the_report_shows_the_schedule_of_the_selected_trial(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("pbt", algorithm=Pbt(population=4, num_rounds=4)),
        null_arm("random", algorithm=RandomSearch(num_trials=2)),
        figures=("schedule",),
    )
    run = runs.create(tmp_path, search, command="x", commit="abc", versions={}, storage=None)
    execute(search, folder=run.folder, place=Place("local", workers=1))
    data = Results(run)
    (table,) = [one for one in data.tables if one.heading.startswith("Schedule")]
    assert table.heading == "Schedule of pbt"
    assert [column.header for column in table.columns] == ["seed", "from steps", "as trial", "x"]
    selected = str(data.selected.set_index("arm").loc["pbt", "trial"])
    last = data.schedules[data.schedules["trial"] == selected].iloc[-1]
    assert last["trained_as"] == selected
    assert last["value"] == data.trials.set_index("trial").loc[selected, "param.x"]
    assert "copied" in rendering.to_markdown([table])
    drawing = draw("schedule", data)
    assert isinstance(drawing, Drawing)
    assert set(drawing.data["arm"]) == {"pbt"}
    empty = RunData(data.metadata, data.trials, data.steps)
    assert isinstance(draw("schedule", empty), Note)
    assert len(empty.tables) == len(data.tables) - 1
