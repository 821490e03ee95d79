import json
import math

from examples.own_algorithm import Evolution, search
from tuneparts.core.config import parse
from tuneparts.executors import Place, execute
from tuneparts.search import load
from tuneparts.search.journal import records
from tuneparts.search.spec import Scale, Search
from tuneparts.testing import AlgorithmContract


class TestEvolution(AlgorithmContract):
    algorithm = Evolution(num_trials=10, children=4)


def test_every_generation_varies_the_best_before_it(tmp_path) -> None:
    smoke = search(Scale.SMOKE)
    assert execute(smoke, folder=tmp_path, place=Place("local", workers=1)) == "done"
    trials = sorted(records(tmp_path / "journal.jsonl").items())
    assert len(trials) == 4
    assert all(record.end is not None and record.end.outcome == "finished" for _, record in trials)
    values = [record.config["hypers"]["affine"]["rotation"] for _, record in trials]
    scores = [record.last.metrics["val/accuracy"] for _, record in trials if record.last]
    parent = values[scores.index(max(scores[:2]))]
    near = [min(parent * factor, math.pi) for factor in (0.8, 1.2)]
    assert set(values[2:]) <= set(near)


def test_the_file_is_a_search_and_its_json_finds_the_class_again() -> None:
    smoke = search(Scale.SMOKE)
    tree = json.loads(smoke.model_dump_json())
    assert tree["arms"][0]["algorithm"]["kind"] == "examples.own_algorithm:Evolution"
    assert parse(Search, tree) == smoke
    assert load.load("examples/own_algorithm.py", scale="smoke").arms[0].trials_per_seed == 4
