"""Data of one's own with real numbers to predict, from the file to the report."""

from pathlib import Path

import pytest

import tuneparts
from tuneparts import Results
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data.config import Data
from tuneparts.executors import Place, execute
from tuneparts.results.figures import gallery
from tuneparts.results.figures.drawing import Drawing
from tuneparts.search import data_record, load, runs
from tuneparts.search.card import RunCard
from tuneparts.search.journal import records

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_data.py"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_example_runs_and_keeps_its_code_and_a_record_of_its_data(
    tmp_path, workers: int
) -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    assert search.metric == "val/mse"
    execute(search, folder=tmp_path, place=Place("local", workers=workers))
    found = records(tmp_path / "journal.jsonl")
    assert [record.end and record.end.outcome for record in found.values()] == ["finished"] * 3
    for record in found.values():
        assert record.last is not None
        assert {"test/mse", "test/rmse", "test/r2"} <= record.last.metrics.keys()
        assert "test/accuracy" not in record.last.metrics
    assert (tmp_path / "code" / "own_data.py").is_file()
    record = data_record.read(tmp_path)
    assert record is not None
    assert (record["name"], record["target"]) == ("own_data:springs", "values")


def test_a_run_is_not_continued_with_other_data(tmp_path) -> None:
    search = load.load(str(EXAMPLE), scale="smoke", arms=["noise"])
    execute(search, folder=tmp_path, place=Place("local", workers=1))
    (tmp_path / "journal.jsonl").unlink()
    record = tmp_path / data_record.FILE
    record.write_text(record.read_text().replace('"num_train": 400', '"num_train": 399'))
    with pytest.raises(DataError, match="goes on with the data that it began with"):
        execute(search, folder=tmp_path, place=Place("local", workers=1))


def test_its_answer_and_figures_are_about_the_error(tmp_path) -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    run = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    execute(search, folder=run.folder, place=Place("local", workers=1))
    results = Results(run)
    assert "has the lowest mean test mse" in results.answer
    drawn = {request: gallery.draw(request, results) for request in search.figures}
    assert drawn["accuracy"].title == "test mse against steps"
    assert isinstance(drawn["accuracy"], Drawing)
    assert isinstance(drawn["scores"], Drawing)
    again = RunCard.from_json(results.metadata.to_json())
    assert again.quantity == "mse"
    assert "val/mse" in [metric.name for metric in again.metrics]


def test_the_command_line_changes_the_data_and_mistakes_are_found_at_once() -> None:
    changes = ["data.arguments.num=200", "data.num_test=20"]
    task = load.load(str(EXAMPLE), scale="smoke", changes=changes).load_data()
    assert (len(task.train), len(task.val), len(task.test)) == (80, 100, 20)
    for change, law in {
        "data.arguments.nun=200": "unexpected keyword argument 'nun'",
        "data.target=regression": "not a known target",
    }.items():
        with pytest.raises((ConfigError, LookupError), match=law):
            load.load(str(EXAMPLE), scale="smoke", changes=[change])


def test_a_search_does_not_select_by_what_its_target_has_not() -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    with pytest.raises(ConfigError, match=r"there is no `val/accuracy`. Use one of: val/mse"):
        search.replaced({"metric": "val/accuracy"})
    assert search.replaced({"metric": "val/r2"}).metric == "val/r2"


def test_data_is_named_by_a_function_alone() -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    module = __import__("own_data")
    target = {"data": module.springs, "metric": "lml/per_example"}
    with pytest.raises(DataError, match="use the target `values`"):
        search.replaced(target).load_data()
    assert search.replaced(target).data == Data(name=module.springs)


OWN_TARGET = """
import numpy as np
import tuneparts as tp

class Absolute(tp.data.Target):
    metrics = (tp.Metric("own_mae", tp.Direction.DOWN, "m", 4, "mean absolute error"),)

    def losses(self, outputs, y):
        return (outputs[:, 0] - y).abs()

    def scores(self, outputs, y):
        return {"own_mae": self.losses(outputs, y).mean().item()}

def heights():
    x = np.random.default_rng(0).uniform(size=(60, 2))
    return x, x[:, 0] + x[:, 1]

def search(scale):
    return tp.Search(
        steps=8, interval=4, batch_size=10, seeds=2,
        data=tp.data.Data(name=heights, num_val=10, target=Absolute),
        arms={"a": tp.Standard()},
    )
"""


def test_a_target_of_ones_own_travels_to_workers_by_its_name(tmp_path) -> None:
    file = tmp_path / "own_target.py"
    file.write_text(OWN_TARGET)
    search = load.load(str(file), scale="smoke")
    assert search.metric == "val/own_mae"
    execute(search, folder=tmp_path / "run", place=Place("local", workers=2))
    found = records(tmp_path / "run" / "journal.jsonl").values()
    assert [record.end and record.end.outcome for record in found] == ["finished"] * 2
    assert all(record.last and record.last.metrics["test/own_mae"] > 0 for record in found)


def test_an_arm_that_cannot_learn_the_target_is_refused_before_there_is_a_folder(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    file = tmp_path / "own_target.py"
    file.write_text(OWN_TARGET.replace("tp.Standard", "tp.Laplace"))
    with pytest.raises(ConfigError, match=r"arm `a` cannot learn .*`laplace` learns classes only"):
        tuneparts.run(file, scale="smoke")
    assert not (tmp_path / "results").exists()
