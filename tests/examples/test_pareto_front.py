"""The example of a space and objectives of one's own, run small."""

import json
from pathlib import Path

import tuneparts
from examples.pareto_front import LIMIT, is_worth_a_try, search
from tuneparts import executors
from tuneparts.core.config import parse
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.results.figures.gallery import draw
from tuneparts.search import load, runs
from tuneparts.search.spec import Scale, Search


def test_it_finds_a_front_of_nets_that_the_constraint_allows(tmp_path: Path) -> None:
    smoke = search(Scale.SMOKE)
    assert parse(Search, json.loads(smoke.model_dump_json())) == smoke
    run = runs.create(tmp_path, smoke, command="", commit="", versions={}, storage=None)
    executors.execute(run.search, folder=run.folder, place=executors.Place("local", workers=1))
    results = tuneparts.Results(run)
    assert results.trials["outcome"].tolist() == ["finished"] * 8
    assert set(results.drawn["name"]) >= {"members", "optimiser.lr"}
    for _, trial in results.trials.iterrows():
        nets = trial["param.members"]
        config = {"members": nets, "optimiser": {"lr": trial["param.optimiser.lr"]}}
        assert is_worth_a_try(parse(DeepEnsemble, config))
    assert results.trials.groupby("arm")["param.optimiser.lr"].first().tolist() == [0.006, 0.006]
    front = results.front
    assert 0 < len(front) <= 8
    assert (results.selected["size/parameters"] <= LIMIT).all()
    for request in ("pareto", "slices"):
        assert not draw(request, results).data.empty


def test_the_file_is_a_search_and_its_code_travels() -> None:
    found = load.load("examples/pareto_front.py", scale="smoke")
    assert found.arms[0].constraint.endswith("pareto_front:is_worth_a_try")
