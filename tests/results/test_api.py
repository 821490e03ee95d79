"""`import tuneparts`: run, continue, load, and what a run gives back."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import tuneparts
from tests.conftest import empty_results
from tuneparts import executors
from tuneparts.core.errors import (
    ConfigError,
    DataMissingError,
    InterruptedRunError,
    UnknownNameError,
)
from tuneparts.results.running import tracking_card
from tuneparts.search import load as search_files
from tuneparts.search import runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import at
from tuneparts.search.card import RunCard
from tuneparts.search.journal import records

pytestmark = pytest.mark.mlflow


@pytest.fixture
def empty_store(tmp_path: Path, template_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    empty_results(tmp_path, template_store, monkeypatch)
    return tmp_path


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, template_store: Path
) -> Iterator[tuneparts.Results]:
    with pytest.MonkeyPatch.context() as patch:
        empty_results(tmp_path_factory.mktemp("results"), template_store, patch)
        search = search_files.load("rotated_digits", scale="smoke", seeds=[0, 1])
        yield tuneparts.run(search, workers=1, console=Console(quiet=True))


def test_frames_and_table_have_every_arm(results: tuneparts.Results) -> None:
    arms = [arm.name for arm in results.search.arms]
    assert results.table["arm"].tolist() == arms
    assert set(results.trials["arm"]) == set(arms)
    assert set(results.steps["arm"]) == set(arms)
    assert "test accuracy" in results.answer


def test_arms_are_compared_over_their_seeds(results: tuneparts.Results) -> None:
    found = results.comparisons_of(against="none", within=0.5)
    assert [(one.one, one.other) for one in found] == [
        ("none", arm.name) for arm in results.search.arms if arm.name != "none"
    ]
    assert all(one.verdict == "2 seeds are too few for an interval" for one in found)
    assert all(one.is_paired for one in found)
    own = results.compare()
    assert (own.one, own.other) == results.search.compare
    pair = results.compare("none", "random")
    assert pair == results.comparisons_of([("none", "random")])[0]
    assert str(pair).startswith("test accuracy of none - random is ")
    assert str(pair) in pair._repr_html_()
    with pytest.raises(ConfigError, match="Name two arms"):
        results.compare("none")


def test_the_best_of_an_arm_is_its_selected_trial_of_a_seed(results: tuneparts.Results) -> None:
    for seed in (0, 1):
        best = results.best("random", seed)
        own = results.trials[(results.trials["arm"] == "random") & (results.trials["seed"] == seed)]
        assert (best.metric, best.score) == ("val/accuracy", own["val/accuracy"].max())
        config = best.config
        assert isinstance(config, tuneparts.Standard)
        assert best.params == {
            path: at(config.model_dump(), path) for path in results.search.arm("random").space
        }
        assert best.params
        shown = best._repr_html_().replace("<wbr>", "")
        assert all(word in shown for word in ("random", *best.params))
    assert results.best() == results.best("random", 0)  # the only arm that searches
    with pytest.raises(UnknownNameError, match="nothing"):
        results.best("nothing")


def test_a_net_gives_the_scores_of_its_trial(results: tuneparts.Results) -> None:
    test = results.search.load_data(draw=1).test
    best = results.best("none", seed=1)
    right = best.net()(torch.from_numpy(np.array(test.inputs))).argmax(1).numpy()
    assert (right == test.labels).mean() == pytest.approx(
        results.trials.set_index("trial").loc[str(best.trial), "test/accuracy"], abs=1e-12
    )


def test_figures_and_the_report(results: tuneparts.Results) -> None:
    assert results.plot("accuracy").data
    assert results.plot() == results.plot("scores:test/accuracy")
    with pytest.raises(DataMissingError, match="cannot be drawn"):
        results.plot("communication")
    html = results._repr_html_()
    assert results.answer.split()[0] in html
    assert "<table" in html
    report = results.report()
    assert report.name == "report.html"
    assert report.is_file()


def test_a_finished_run_is_loaded_and_resumed_without_running_again(
    results: tuneparts.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(results.run.root))
    journal = results.run.folder / "journal.jsonl"
    before = journal.read_bytes()
    assert tuneparts.load("rotated_digits").answer == results.answer
    assert tuneparts.load(results.run.folder).answer == results.answer
    (row,) = tuneparts.runs().to_dict("records")
    assert (row["name"], row["status"], row["open"]) == (results.name, "finished", 0)
    assert row["done"] == len(results.trials)
    assert tuneparts.resume(workers=1, console=Console(quiet=True)).answer == results.answer
    assert journal.read_bytes() == before


def test_ctrl_c_leaves_a_run_that_can_be_continued(
    results: tuneparts.Results,
    template_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty_results(tmp_path, template_store, monkeypatch)
    search = search_files.load("rotated_digits", scale="smoke", arms=["none"], seeds=[0])
    quiet = Console(quiet=True)
    with monkeypatch.context() as cut:
        cut.setattr(executors, "execute", lambda *args, **kwargs: "interrupted")
        with pytest.raises(InterruptedRunError, match="tuneparts resume rotated_digits/"):
            tuneparts.run(search, workers=1, console=quiet)
    with pytest.raises(DataMissingError, match="no trial of rotated_digits/"):
        tuneparts.resume(workers=1, console=quiet)  # nobody means a run that never ran
    with pytest.raises(DataMissingError, match="has run"):
        tuneparts.load()
    (made,) = runs.listing(tmp_path)
    found = tuneparts.resume(made.name, workers=1, console=quiet)
    (trial,) = records(found.run.folder / "journal.jsonl").values()
    assert trial.end is not None
    first = results.trials[results.trials["trial"] == "none/seed0/00000"]
    assert found.trials["test/accuracy"].tolist() == first["test/accuracy"].tolist()


def test_a_search_object_is_run_as_it_is(results: tuneparts.Results) -> None:
    with pytest.raises(ConfigError, match="run as it is"):
        tuneparts.run(results.search, seeds=[3])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        tuneparts.nothing  # noqa: B018
    assert {"run", "load", "Search"} <= set(dir(tuneparts))


def test_a_secret_in_a_question_reaches_neither_report_nor_store(tmp_path: Path) -> None:
    search = search_files.load("rotated_digits", scale="smoke", arms=["none"])
    search = search.model_copy(update={"question": 'Is password="hunter2" right?'})
    run = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    written = [RunCard.of(run).to_json(), tracking_card(run).resolved]
    for text in written:
        assert "hunter2" not in text
        json.loads(text)


def test_several_threads_run_searches_at_once_also_the_same_one(
    empty_store: Path, null_search, null_arm
) -> None:
    """One of them has a trial whose score is NaN."""
    arms = (null_arm("fixed"), null_arm("random", algorithm=RandomSearch(num_trials=3)))
    same = null_search(*arms)
    other = null_search(*arms, null_arm("wild", config={"fault": "score"}), name="other")
    with ThreadPoolExecutor(3) as threads:
        found = list(
            threads.map(
                lambda one: tuneparts.run(one, workers=1, console=Console(quiet=True)),
                [same, same, other],
            )
        )
    first, second, third = found
    assert first.run.name != second.run.name
    good = third.trials[third.trials["arm"] != "wild"].reset_index(drop=True)
    names = ["trial", "outcome", "val/accuracy", "test/accuracy"]
    assert good[names].equals(first.trials[names])
    assert second.trials[names].equals(first.trials[names])
    (wild,) = third.trials[third.trials["arm"] == "wild"].to_dict("records")
    assert wild["outcome"] == "failed"
    assert "a score is a finite number" in wild["error"]
    assert all(run_id for one in found for run_id in one.trials["run_id"])
