"""The command line as a person meets it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuneparts.cli.main import app
from tuneparts.core.errors import TunepartsError
from tuneparts.core.glossary import define
from tuneparts.methods import catalog

VERBS = [
    "search",
    "resume",
    "sync",
    "report",
    "fit",
    "methods",
    "searches",
    "data",
    "doctor",
    "ui",
    "dashboard",
    "register",
    "submit",
    "cluster",
]


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TUNEPARTS_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_every_verb() -> None:
    output = invoke("--help")
    assert all(verb in output for verb in VERBS)
    for verb in VERBS:
        assert "Usage" in invoke(verb, "--help")


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ([], ["search"]),
        (["search"], ["search", "arm", "seed", "scale", "step"]),
        (["fit"], ["step"]),
        (["register"], ["arm"]),
    ],
)
def test_help_defines_the_words_that_it_uses(verb: list[str], words: list[str]) -> None:
    output = " ".join(invoke(*verb, "--help").split())
    for word in words:
        assert define(word) in output


QUICK = [
    "--help",
    "--version",
    "methods",
    "searches",
    "search rotated_digit",
    "search rotated_digits --scale huge",
    "search rotated_digits --set random.lr",
    "search rotated_digits --trials 0",
    "search rotated_digits --seeds a",
    "report nothing",
    "resume nothing",
    "fit standart",
    "fit standard --data mnits",
    "methods standart",
    "new rotated_digits",
]


def test_help_and_listings_import_nothing_heavy() -> None:
    code = (
        "import sys; from tuneparts.cli.main import app\n"
        f"for words in {QUICK!r}:\n"
        "    try: app(words.split())\n"
        "    except (SystemExit, Exception) as error: print(type(error).__name__, error)\n"
        "heavy = {'torch', 'ray', 'mlflow', 'pandas', 'optuna'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for said in ("`rotated_digit` is not a known search", "`huge` is not a known scale"):
        assert said in done.stdout
    assert done.stdout.count("not a run") == 2
    assert done.stdout.count("Did you mean `standard`") == 2


def test_the_package_can_be_called_where_its_command_is_not_on_the_path() -> None:
    command = [sys.executable, "-m", "tuneparts", "fit", "standart"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("tuneparts: `standart` is not a known method")


def test_methods_lists_the_catalog() -> None:
    output = invoke("methods")
    assert all(name in output for name in catalog.METHODS.known)
    assert "null" not in output


def test_searches_lists_questions() -> None:
    output = invoke("searches")
    assert "rotated_digits" in output
    assert "Does one partitioned run" in output


def test_data_says_where_each_set_is_or_how_to_get_it(monkeypatch) -> None:
    monkeypatch.delenv("TUNEPARTS_DATA", raising=False)
    output = invoke("data")
    assert "digits" in output
    assert "1,297" in output
    assert "tuneparts data" in output


def test_fit_trains_one_learner(monkeypatch) -> None:
    changes = ["steps=8", "interval=4", "net=digits_cnn", "data.num_train=100"]
    words = [word for change in changes for word in ("--set", change)]
    output = invoke("fit", "standard", "--data", "digits", *words)
    assert "test/accuracy" in output
    assert "train/loss" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "standart"], "Did you mean `standard`"),
        (["fit", "standard", "--set", "batchsize=3"], "Did you mean `batch_size`"),
        (["fit", "standard", "--data", "mnits"], "Did you mean `mnist`"),
        (["search", "nothing"], "is not a known search"),
        (["search", "rotated_digits", "--seeds", "a"], "--seeds a: no whole numbers"),
        (["report"], "tuneparts search rotated_digits"),
        (["resume", "nothing"], "is not a run"),
    ],
)
def test_mistakes_are_answered_with_the_cure(words: list[str], message: str) -> None:
    with pytest.raises((TunepartsError, ValueError), match=message):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_our_errors_print_as_a_sentence_and_exit_with_two(elsewhere) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuneparts.cli.main", "report"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tuneparts: there is no run under")
    assert "Traceback" not in done.stderr


def test_dry_run_prints_the_plan_and_runs_nothing(elsewhere) -> None:
    output = invoke("search", "rotated_digits", "--scale", "smoke", "--dry-run")
    for word in ("partitioned", "random", "steps", "minutes", "digest", "val/accuracy"):
        assert word in output
    assert not (elsewhere / "results").exists()


@pytest.mark.mlflow
def test_doctor_finds_nothing_wrong_here(monkeypatch) -> None:
    from tuneparts.cli import _doctor

    monkeypatch.setattr(_doctor, "_ray", lambda: "it answers")  # one Ray is enough for all tests
    output = invoke("doctor")
    assert "FAILED" not in output
    assert "digits" in output
