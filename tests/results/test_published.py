"""Published results: a few small files, from which everything is made again."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import tuneparts
from tuneparts import executors
from tuneparts.cli.main import app
from tuneparts.core import settings
from tuneparts.core.errors import ConfigError, DataError, DataMissingError
from tuneparts.executors.place import Place
from tuneparts.results import export, rendering, running
from tuneparts.results.export import MOST_BYTES, Published, _is_published
from tuneparts.results.export import _csv as published_csv
from tuneparts.results.export import _steps as released_steps
from tuneparts.results.figures.drawing import Drawing
from tuneparts.results.figures.gallery import draw
from tuneparts.search import runs
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.extension import extended
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.testing.null import NullConfig

ROOT = Path(__file__).parents[2]
LOCAL = Place("local")
RELEASED = sorted((ROOT / "docs" / "results").iterdir())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuneparts.Results:
    config, space = NullConfig(steps=8, interval=2), {"x": Uniform(low=0.01, high=1.0, log=True)}
    search = Search(
        name="null", question="?", scale=Scale.SMOKE, data={"name": "digits", "num_val": 10},
        metric="val/accuracy", steps=8, seeds=(0, 1, 2), compare=("one", "random"), within=0.1,
        arms=(
            Arm(name="random", config=config, algorithm=RandomSearch(num_trials=4), space=space),
            Arm(name="one", config=NullConfig(steps=8, interval=2, x=0.5)),
        ),
    )  # fmt: skip
    root = tmp_path_factory.mktemp("runs")
    facts = {"machine": "m", "packages": ["a==1"], "repository": None}
    made = runs.create(root, search, command="c", commit="", versions={}, storage=None, **facts)
    executors.execute(search, folder=made.folder, place=Place("local", workers=1))
    return tuneparts.Results(made)


@pytest.fixture
def published(results: tuneparts.Results, tmp_path: Path) -> tuneparts.Results:
    written = results.export("results", tmp_path / "null")
    assert sum(path.stat().st_size for path in written) < MOST_BYTES
    found = tuneparts.load(str(tmp_path / "null"))
    assert isinstance(found, Published)
    return found


@pytest.mark.parametrize("folder", RELEASED, ids=lambda folder: folder.name)
def test_what_we_released_is_small_and_names_no_place(folder: Path) -> None:
    files = list(folder.iterdir())
    assert max(file.stat().st_size for file in files) < 500_000
    assert sum(file.stat().st_size for file in files) < 1_000_000
    for file in files:
        assert not re.search(r"/(home|root|work|tmp|Users)/", file.read_text("utf-8")), file
    found = tuneparts.load(str(folder))
    assert found.answer
    assert found.plot("scores").data


def test_the_documents_quote_the_quickstart_as_it_was_released() -> None:
    found = tuneparts.load(str(ROOT / "docs" / "results" / "rotated_digits"))
    page = (ROOT / "docs" / "results.md").read_text("utf-8").partition("## Rotated MNIST")[0]
    readme = (ROOT / "README.md").read_text("utf-8")
    for _, row in found.table.iterrows():
        score = f"{row['test/accuracy']:.3f} ± {row['test/accuracy:se']:.3f}"
        assert score in page
        assert score in readme
    verdict = found.compare()
    assert verdict.interval is not None
    for number in (verdict.difference, verdict.interval.low, verdict.interval.high):
        assert f"{number:.3f}" in page
        assert f"{number:.3f}" in readme


def test_tables_verdicts_answer_and_figures_are_the_same(
    results: tuneparts.Results, published: tuneparts.Results
) -> None:
    assert published.answer == results.answer
    assert rendering.to_markdown(published.tables) == rendering.to_markdown(results.tables)
    assert published.compare() == results.compare()
    assert published.comparisons == results.comparisons
    for request in ("accuracy", "scores", "best_of_n", "slices"):
        one, other = draw(request, results), draw(request, published)
        assert isinstance(one, Drawing)
        assert isinstance(other, Drawing)
        assert one.figure.to_json() == other.figure.to_json()
        assert one.caption == other.caption


def test_it_is_reported_without_the_run(
    published: tuneparts.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "elsewhere"))
    page = published.report()
    assert page == settings.current().results_dir / "published" / "null" / "report" / "report.html"
    assert "The comparison that answers the question" in page.read_text(encoding="utf-8")
    with pytest.raises(DataMissingError, match="results only"):
        published.best("one").net()


def test_where_it_comes_from_is_beside_it(published: tuneparts.Results, tmp_path: Path) -> None:
    found = json.loads((tmp_path / "null" / "provenance.json").read_text())
    assert (found["machine"], found["packages"]) == ("m", ["a==1"])
    assert json.loads((tmp_path / "null" / "search.json").read_text())["name"] == "null"
    assert "run_id" not in (tmp_path / "null" / "trials.csv").read_text().partition("\n")[0]
    assert published.name == "null"


def test_what_an_arm_holds_is_written_once_and_read_back_to_the_letter(
    results: tuneparts.Results, published: tuneparts.Results, tmp_path: Path
) -> None:
    trials = results.trials.drop(columns="run_id")
    whole = export._as_text(published_csv(trials))
    written = export._as_text(tmp_path / "null" / "trials.csv")
    assert "param.method" in whole
    assert "param.method" not in written
    assert "param.x" in written  # drawn by one arm, held by the other
    again = export._texts(tmp_path / "null")
    pd.testing.assert_frame_equal(again["trials"], whole)
    for name in ("steps", "drawn"):
        frame = getattr(results, name)
        assert len(frame)
        assert "arm" not in export._as_text(tmp_path / "null" / f"{name}.csv")
        pd.testing.assert_frame_equal(
            again[name], export._as_text(published_csv(frame)), check_dtype=False
        )


def test_damaged_files_are_refused(published: tuneparts.Results, tmp_path: Path) -> None:
    assert _is_published(tmp_path / "null")
    constants = tmp_path / "null" / "constants.json"
    kept = constants.read_text()
    for damaged in ("{", "{}", '{"columns": ["arm"], "arms": {}}', "[]"):
        constants.write_text(damaged)
        with pytest.raises(DataError):
            assert len(Published(tmp_path / "null").trials)
    constants.write_text(kept)
    steps = tmp_path / "null" / "steps.csv"
    whole = steps.read_text()
    steps.write_text(whole.replace("one/seed0/00000", "one/seed9/00000"))
    with pytest.raises(DataError, match=r"steps.csv has trials that trials.csv does not have"):
        assert len(Published(tmp_path / "null").trials)
    steps.write_text(whole)
    (tmp_path / "null" / "metadata.json").write_text("{")
    with pytest.raises(DataError):
        assert len(Published(tmp_path / "null").trials)
    assert not _is_published(tmp_path)


def test_only_two_arms_get_more_seeds(results: tuneparts.Results) -> None:
    search = results.search
    arms = (*search.arms, Arm(name="more", config=NullConfig(steps=8, interval=2)))
    wider = search.replaced({"arms": [arm.model_dump() for arm in arms]})
    found, news = extended(wider, seeds=[3], only=("one", "random"))
    assert {arm.name: found.seeds_of(arm) for arm in found.arms} == {
        "random": (0, 1, 2, 3),
        "one": (0, 1, 2, 3),
        "more": (0, 1, 2),
    }
    assert news == (
        "random has more seeds: 3",
        "one has more seeds: 3",
    )


def test_replicates_are_added_until_a_pair_is_decided(
    results: tuneparts.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    search = results.search.replaced({"within": None})
    made = runs.create(tmp_path, search, command="", commit="", versions={}, storage=None)
    executors.execute(search, folder=made.folder, place=Place("local", workers=1))

    def execute(run: runs.Run, *_: object) -> tuneparts.Results:
        executors.execute(run.search, folder=run.folder, place=Place("local", workers=1))
        return tuneparts.Results(run)

    monkeypatch.setattr(running, "execute", execute)
    steps = list(running.until_decided(made, ("one", "random"), LOCAL, at_most=5))
    assert [step.num for step in steps] == list(range(3, 3 + len(steps)))
    last = steps[-1]
    assert last.verdict or last.num == 5
    after = runs.named(tmp_path, made.name)
    if len(steps) > 1:
        assert "added until decided: one:random" in after.card["history"][0]["news"]
        text = rendering.to_markdown([tuneparts.Results(after).comparisons[0]])
        assert "until one:random was decided" in text


def said(*words: str) -> str:
    """What a verb prints about released folders."""
    names = [
        str(ROOT / "docs" / "results" / w) if (ROOT / "docs" / "results" / w).is_dir() else w
        for w in words
    ]
    result = CliRunner().invoke(app, names, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def told(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(*words, "--json"))
    return found


def test_the_table_is_printed_for_programs() -> None:
    found = told("report", "rotated_digits")
    assert found["question"].endswith("?")
    assert {"none", "random", "partitioned"} <= {row["arm"] for row in found["arms"]}


def test_a_pair_that_was_decided_while_looking_has_the_interval_that_holds() -> None:
    pair = "partitioned_best:validation_best"
    row = told("compare", "partition_best", "--pairs", f"{pair},{pair}")
    (found,) = row["comparisons"]
    assert found["always_valid_low"] < found["low"] < found["high"] < found["always_valid_high"]
    one, other = pair.split(":")
    folder = ROOT / "docs" / "results" / "partition_best"
    held = tuneparts.load(str(folder)).decide((one, other), within=row["within"])
    assert found["always_valid_low"] == held.interval.low
    text = " ".join(said("compare", "partition_best", "--pairs", pair).split())
    assert f"{held.interval.low:+.4f} to {held.interval.high:+.4f} holds" in text


def test_an_arm_is_compared_with_its_rivals_and_not_with_their_tuning() -> None:
    found = told("compare", "benchmark_inputs", "--against", "random")["comparisons"]
    others = {row["other"] for row in found}
    assert "tpe" in others
    assert not [name for name in others if name.startswith("tune_")]


def test_released_folders_are_one_benchmark() -> None:
    names = ["partition_best", "partition_best_mnist"]
    found = told("ranks", *names)
    assert found["runs"] == names
    best, *_ = found["arms"]
    assert best["low"] < best["interquartile_mean"] < best["high"]
    for name in names:
        assert 0 < best[name] < 1
        assert best[f"{name}:rank"] >= 1


def test_two_folders_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    source = ROOT / "docs" / "results" / "rotated_digits"
    shutil.copytree(source, tmp_path / "rotated_digits")
    names = ["ranks", str(source), str(tmp_path / "rotated_digits")]
    with pytest.raises(ConfigError, match="have the same name"):
        CliRunner().invoke(app, names, catch_exceptions=False)


def test_steps_are_released_as_far_as_they_fit(
    results: tuneparts.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, sizes = results, []
    chosen = set(data.selected["trial"])
    scores = {"val/accuracy", data.answer_metric, "cost/updates", "cost/seconds"}
    for fits in (10**6, len(published_csv(data.steps)) - 1, 0):
        monkeypatch.setattr("tuneparts.results.export.MOST_BYTES", fits)
        found = released_steps(data)
        sizes.append(len(found))
        if fits == 0:
            assert set(found["trial"]) <= chosen
            assert set(found["metric"]) <= scores
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == len(data.steps) > sizes[-1] > 0
