"""`tuneparts search`: the table and the report come, whatever MLflow does."""

import fcntl
import socket
from pathlib import Path

import pytest

from tuneparts.cli import _running as verb
from tuneparts.core.config import Config
from tuneparts.core.errors import AllFailedError, BusyError, ClusterError, ConfigError
from tuneparts.executors.place import Place
from tuneparts.results import answer, running, tables
from tuneparts.search import load, runs
from tuneparts.testing.null import NullLearner
from tuneparts.tracking import record

LOCAL = Place("local")
ARGUMENTS = {
    "scale": "smoke",
    "local": True,
    "seeds": "0",
    "arms": "partitioned,none",
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def dead_store(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that does not answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", uri)
    monkeypatch.setattr(running, "_PATIENCE", 0.3)
    return uri


@pytest.mark.mlflow
def test_a_store_that_does_not_answer_costs_neither_table_nor_report(
    results: Path, dead_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb.search("rotated_digits", **ARGUMENTS)
    told = capsys.readouterr().out
    (folder,) = (results / "rotated_digits").iterdir()
    assert "scores and costs" in told
    assert "test accuracy" in told
    page = folder / "report" / "report.html"
    assert page.is_file()
    assert "report.html" in told
    assert f"tuneparts sync rotated_digits/{folder.name}" in " ".join(told.split())
    assert (folder / "report" / "trials.csv").read_text("utf-8").count("\n") == 3


@pytest.mark.mlflow
def test_a_search_is_read_parsed_tabled_and_answered_once(
    results: Path, dead_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"parsed": 0, "read": 0, "tabled": 0, "answered": 0}

    def counted(name: str, function):
        def call(*given, **named):
            counts[name] += 1
            return function(*given, **named)

        return call

    read_text = Path.read_text

    def reading(self: Path, *given, **named):
        counts["read"] += self.name == "run.json"
        return read_text(self, *given, **named)

    monkeypatch.setattr(Path, "read_text", reading)
    monkeypatch.setattr(tables, "_build", counted("tabled", tables._build))
    monkeypatch.setattr(answer, "_answer", counted("answered", answer._answer))
    validate = Config.model_validate.__func__

    def validating(cls, *given, **named):
        counts["parsed"] += cls.__name__ == "Search"
        return validate(cls, *given, **named)

    monkeypatch.setattr(Config, "model_validate", classmethod(validating))
    verb.search("rotated_digits", **ARGUMENTS)
    assert counts == {"parsed": 1, "read": 0, "tabled": 1, "answered": 1}


def test_the_end_names_the_experiment_on_a_server_and_else_the_verb(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running._create(load.load("rotated_digits", scale="smoke", arms=["none"]))
    assert verb.where_to_look(run) == "MLflow UI   tuneparts ui --open"
    monkeypatch.setenv("TUNEPARTS_TRACKING_URI", "https://me:hunter2@mlflow.example/")
    assert "hunter2" not in verb.where_to_look(run)
    assert verb.where_to_look(run).endswith("mlflow.example")  # it has not answered yet
    known = record._create(run.folder, 0.0)
    known.experiment = "7"
    known.save()
    link = "mlflow.example/#/experiments/7/runs?workflowType=machine_learning"
    assert verb.where_to_look(run).endswith(link)


def test_a_cluster_that_does_not_answer_leaves_nothing_behind(results: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ClusterError, match=f"`{address}`: no Ray cluster answers"):
        verb.search("rotated_digits", **ARGUMENTS | {"local": False, "address": address})
    assert [path.name for path in results.iterdir()] == ["mlflow.db"]


def test_a_run_of_a_cluster_goes_on_here_only_if_told_so(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = load.load("rotated_digits", scale="smoke", arms=["none"])
    made = running._create(search, address="head:6379")
    executed = []
    monkeypatch.setattr(verb, "execute", lambda run, place, *_, **__: executed.append(place))
    with pytest.raises(ConfigError, match="--address head:6379"):
        verb.resume(made.name)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for is_wanted in (False, True):
        monkeypatch.setattr("typer.confirm", lambda question, said=is_wanted: said)
        if is_wanted:
            verb.resume(made.name)
        else:
            with pytest.raises(ConfigError, match="--local"):
                verb.resume(made.name)
    verb.resume(made.name, local=True)
    verb.resume(made.name, address="head:6379")
    assert executed == [Place(), LOCAL, Place(address="head:6379")]
    here = running._create(search)
    verb.resume(here.name)


def test_a_second_driver_does_not_touch_the_store(results: Path) -> None:
    search = load.load("rotated_digits", scale="smoke", arms=["none"])
    (results / "mlflow.db").unlink()
    made = runs.create(results, search, command="", commit="", versions={}, storage=None)
    with (made.folder / "lock").open("a+") as held:  # as another process would hold it
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="one driver at a time"):
            verb.resume(made.name, local=True)
    assert sorted(path.name for path in made.folder.iterdir()) == ["lock", "run.json"]
    assert not (results / "mlflow.db").exists()


@pytest.mark.mlflow
def test_a_search_that_found_nothing_ends_with_an_error(
    results: Path, dead_store: str, null_search, null_arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = null_search(null_arm("broken"))
    monkeypatch.setattr(load, "load", lambda *_, **__: search)
    monkeypatch.setattr(load, "find", lambda *_: Path("any.py"))

    def fail(self: object) -> None:
        raise ValueError("broken for good")

    monkeypatch.setattr(NullLearner, "advance", fail)
    message = "1 of 1 trials failed; broken/seed0/00000: ValueError: broken for good"
    with pytest.raises(AllFailedError, match=message):
        verb.search("any", **ARGUMENTS)
    (page,) = results.glob("*/*/report/report.html")
    assert "broken for good" in page.read_text("utf-8")
