import pytest

from tuneparts.reports.figures.drawing import Drawing
from tuneparts.reports.figures.tasks import tasks


@pytest.fixture
def run_data(scored):
    return lambda **scores: scored({arm: {0: s, 1: s + 0.02} for arm, s in scores.items()})


def lines(drawing: Drawing) -> dict[str, tuple[list, list]]:
    return {
        line.name: (list(line.x), [round(y, 9) for y in line.y]) for line in drawing.figure.data
    }


def test_sizes_lie_in_order_on_an_axis_of_numbers(run_data) -> None:
    runs = {2000: run_data(a=0.7, b=0.6), 500: run_data(a=0.5, b=0.2), 8000: run_data(a=0.9)}
    drawing = tasks(runs, "num_train", "test/accuracy")
    assert lines(drawing) == {
        "a": ([500, 2000, 8000], [0.51, 0.71, 0.91]),
        "b": ([500, 2000], [0.21, 0.61]),
    }
    assert drawing.figure.layout.xaxis.type == "log"
    assert drawing.figure.data[0].error_y.array[0] == pytest.approx(0.01)


def test_names_are_categories_in_the_order_given(run_data) -> None:
    drawing = tasks({"y": run_data(a=0.5), "x": run_data(a=0.7)}, "run", "test/accuracy")
    assert lines(drawing)["a"][0] == ["y", "x"]
    assert drawing.figure.layout.xaxis.type == "category"
