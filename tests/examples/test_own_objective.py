"""The example of an objective of one's own, run small."""

import sys
from pathlib import Path
from typing import Any

import pytest

import tuneparts
from tuneparts import executors
from tuneparts.core import schema
from tuneparts.search import runs
from tuneparts.search.algorithms.base import draw
from tuneparts.search.spec import Scale

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))
    import own_objective

    yield own_objective
    sys.modules.pop("own_objective")


def test_it_finds_what_a_loop_finds(example: Any, tmp_path: Path) -> None:
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    run = runs.create(tmp_path, example.search(Scale.SMOKE), **facts)
    executors.execute(run.search, folder=run.folder, place=executors.Place("local", workers=1))
    results = tuneparts.Results(run)
    arm = results.search.arm("random")
    for seed in (0, 1):
        draws = [draw(arm, seed, index) for index in range(12)]
        points = [{path.removeprefix("params."): v for path, v in one.items()} for one in draws]
        best = results.selected.set_index(["arm", "seed"]).loc[("random", seed), "val/branin"]
        assert best == min(example.branin(point) for point in points)
    assert len(results.trials) == 2 * 2 * 12
    assert "mean val branin" in results.answer


def test_it_is_branins_function(example: Any) -> None:
    for x, y in ((-3.14159, 12.275), (3.14159, 2.275), (9.42478, 2.475)):
        assert example.branin({"x": x, "y": y}) == pytest.approx(0.397887, abs=1e-5)
