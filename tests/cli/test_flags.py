"""Flags of verbs on one small run: each reaches what it is there for."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import tuneparts
from tests.conftest import empty_results
from tuneparts.cli.main import app
from tuneparts.core.errors import ConfigError
from tuneparts.nets import DigitsCnn

pytestmark = pytest.mark.mlflow
FILE = '''
import os
from pathlib import Path
from tuneparts import Arm, Objective, RandomSearch, Scale, Search, Uniform

def loss(config, report):
    if config["x"] > 2 and not Path(os.environ["TUNEPARTS_RESULTS"], "mended").exists():
        raise ValueError("broken")
    for step in range(4):
        report({"val/loss": (config["x"] - 1) ** 2 + config["seed"] / (step + 1),
                "test/loss": config["x"]})

def search(scale: Scale) -> Search:
    """Which range is lower?"""
    reports = {"val/loss": "min", "test/loss": "min"}
    config = Objective(function=loss, reports=reports, steps=4, interval=1)
    space = {"params.x": Uniform(low=-1, high=1.5)}
    drawn = {"config": config, "space": space, "algorithm": RandomSearch(num_trials=4)}
    arms = [Arm(name=name, **drawn) for name in NAMES]
    arms.append(Arm(name="held", config=config.replaced({"params": {"x": 3.0}})))
    return Search(name="small", question="Which range is lower?", scale=scale, metric="val/loss",
                  steps=4, seeds=(0, 1), arms=arms)
'''


def invoke(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, template_store: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("flags")
    (folder / "small.py").write_text(f'NAMES = ["one", "two"]{FILE}')
    (folder / "wider.py").write_text(f'NAMES = ["one", "two", "three"]{FILE}')
    with pytest.MonkeyPatch.context() as patch:
        empty_results(folder, template_store, patch)
        patch.chdir(folder)
        yield folder


SEARCH = ("search", "small.py", "--scale", "smoke", "--local", "--cpus", "1", "--trials", "2")
CHANGES = ("--seeds", "0,1,2", "--set", "stop.hours=2", "--storage")


@pytest.fixture(scope="module")
def run(folder: Path) -> tuneparts.Results:
    found = json.loads(
        invoke(*SEARCH, *CHANGES, str(folder / "kept"), "--arms", "one,two", "--json")
    )
    assert [row["arm"] for row in found["arms"]] == ["one", "two"]
    return tuneparts.load("small")


def test_a_search_takes_its_changes_from_the_command_line(
    folder: Path, run: tuneparts.Results
) -> None:
    trials = run.trials
    assert len(trials) == 2 * 2 * 3
    assert set(trials["seed"]) == {0, 1, 2}
    assert run.search.stop is not None
    assert run.search.stop.hours == 2
    assert (folder / "kept").is_dir()
    words = (*SEARCH, *CHANGES, str(folder / "kept"), "--arms", "one,two", "--resume", "--csv")
    assert [row["arm"] for row in table(invoke(*words))] == ["one", "two"]
    assert tuneparts.load("small").name == run.name


def test_what_a_run_found_is_printed_in_every_form(
    run: tuneparts.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    invoke("report", run.name, "--open")
    assert opened == [(run.run.folder / "report" / "report.html").as_uri()]
    assert [row["arm"] for row in table(invoke("report", run.name, "--csv"))] == ["one", "two"]
    asked = ("compare", run.name, "--metric", "val/loss", "--within", "100")
    found: dict[str, Any] = json.loads(invoke(*asked, "--against", "two", "--json"))
    (row,) = found["comparisons"]
    assert (found["metric"], found["within"]) == ("val/loss", 100)
    assert {row["one"], row["other"]} == {"one", "two"}
    assert "equivalent" in row["verdict"]
    (early,) = table(invoke(*asked, "--pairs", "one:two", "--at", "steps=1", "--csv"))
    (late,) = table(invoke(*asked, "--pairs", "one:two", "--csv"))
    assert early["one"] == late["one"] == "one"
    assert "1 step" in invoke(*asked, "--pairs", "one:two", "--at", "steps=1")


def test_several_runs_are_ranked_drawn_and_written(folder: Path, run: tuneparts.Results) -> None:
    cpu = [*SEARCH, "--seeds", "0,1,2", "--arms", "one,two"]
    invoke(*(word.replace("smoke", "cpu") for word in cpu))
    names = (
        "ranks",
        run.name,
        tuneparts.load("small").name,
        "--metric",
        "val/loss",
        "--mix-scales",
    )
    with pytest.raises(ConfigError, match="--mix-scales"):
        invoke(*names[:-1])
    out = ("--out", "bench", "--plot", "plot.html")
    found = json.loads(invoke(*names, "--against", "two", *out, "--json"))
    assert (found["metric"], found["against"]) == ("val/loss", "two")
    assert (folder / "bench" / "benchmark.html").is_file()
    assert "plotly" in (folder / "plot.html").read_text("utf-8")
    assert {row["arm"] for row in table(invoke(*names, "--csv"))} == {"one", "two"}


@pytest.mark.parametrize(
    ("to", "out", "file"),
    [
        ("optuna", "study.db", "study.db"),
        ("csv", "csv", "csv/trials.csv"),
        ("parquet", "parquet", "parquet/trials.parquet"),
        ("results", "published", "published/metadata.json"),
    ],
)
def test_a_run_is_written_for_other_programs(
    folder: Path, run: tuneparts.Results, to: str, out: str, file: str
) -> None:
    invoke("export", run.name, "--to", to, "--out", out)
    assert (folder / file).is_file()
    again = json.loads(invoke("verify", run.name, "--trials", "2", "--seed", "1", "--json"))
    assert (again["trials"], again["failed"], again["differences"]) == (2, [], [])
    assert table(invoke("verify", run.name, "--trials", "1", "--csv")) == []


def test_a_run_is_resumed_extended_and_stopped(folder: Path) -> None:
    invoke("search", "small.py", "--scale", "smoke", "--local", "--trials", "2", "--seeds", "0,1")
    name, here = tuneparts.load("small").name, ("--local", "--cpus", "1")

    def outcomes() -> "pd.Series[int]":
        return tuneparts.load(name).trials.groupby(["arm", "outcome"]).size()

    assert outcomes()["held", "failed"] == 2
    (folder / "mended").touch()
    invoke("resume", name, *here, "--retry-failed")
    assert outcomes()["held", "finished"] == 2

    more = ("extend", name, "--trials", "two=3", "--seeds", "2", *here)
    assert "two" in invoke(*more, "--dry-run")
    assert outcomes()["two", "finished"] == 4
    invoke(*more, "--arms", "three", "--search", "wider.py")
    counts = tuneparts.load(name).trials.groupby("arm").size().to_dict()
    assert counts == {"one": 6, "two": 9, "held": 3, "three": 12}

    decided = ("--until-decided", "one:two", "--within", "1000", "--at-most", "4")
    said = invoke("extend", name, *decided, "--metric", "val/loss", *here)
    assert "3 seeds: val/loss of one - two" in said
    assert "has nothing left to stop" in invoke("stop", name)


def test_one_learner_is_trained_for_programs() -> None:
    words = ("fit", "standard", "--data", "digits", "--set", "steps=4", "--set", "interval=2")
    found = [json.loads(invoke(*words, "--seed", seed, "--json")) for seed in "01"]
    assert found[0] != found[1]
    assert table(invoke(*words, "--csv"))
    scales = [invoke("searches", "rotated_digits", "--scale", one, "--json") for one in SCALES]
    assert scales[0] != scales[1]


SCALES = ("smoke", "cpu")


def test_a_net_is_compressed_for_programs(folder: Path) -> None:
    torch.save(DigitsCnn().build((1, 8, 8), 10).state_dict(), folder / "weights.pt")
    words = ["compress", "weights.pt", "--out", "net.npz", "--data", "digits", "--seed", "3"]
    for change in ("net=digits_cnn", "steps=8", "interval=4", "data.num_train=100"):
        words += ["--set", change]
    found = json.loads(invoke(*words, "--json"))
    (folder / "net.npz").unlink()
    assert table(invoke(*words, "--csv"))
    assert str((folder / "net.npz").stat().st_size) in str(found)
