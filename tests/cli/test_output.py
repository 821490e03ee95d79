"""The same rows for people and for programs, and what can be set."""

import csv
import io
import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tuneparts
from tuneparts import executors
from tuneparts.cli import _doctor, _listing, serving
from tuneparts.cli._output import PIPE_WIDTH, Form, terminal, write
from tuneparts.cli.main import app
from tuneparts.core.errors import ConfigError, UnknownNameError, _PortError
from tuneparts.methods import catalog
from tuneparts.search import load, runs


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "key", "column", "first"),
    [
        (["methods"], "methods", "method", "standard"),
        (["methods", "standard"], "fields", "path", "steps"),
        (["nets"], "nets", "net", "mlp"),
        (["nets", "resnet9"], "fields", "path", "name"),
        (["searches"], "searches", "search", "benchmark_cifar"),
        (["searches", "rotated_digits"], "arms", "arm", "partitioned"),
        (["data"], "sets", "set", "digits"),
        (["data", "digits"], "fields", "path", "name"),
    ],
)
def test_every_listing_is_also_json_and_csv(
    words: list[str], key: str, column: str, first: str
) -> None:
    rows = json.loads(invoke(*words, "--json"))[key]
    assert rows[0][column] == first
    table = list(csv.DictReader(io.StringIO(invoke(*words, "--csv"))))
    assert [row[column] for row in table] == [row[column] for row in rows]
    assert list(table[0]) == list(rows[0])


def test_one_form_at_a_time() -> None:
    with pytest.raises(ConfigError, match="--json, --csv"):
        invoke("methods", "--json", "--csv")


def test_a_plan_is_also_json(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuneparts.cli import _estimate

    monkeypatch.setattr(_estimate, "seconds_per_arm", lambda *_: dict.fromkeys(ARMS, 2.0))
    plan = json.loads(invoke("search", "rotated_digits", "--scale", "smoke", "--dry-run", "--json"))
    assert (plan["search"], plan["scale"]) == ("rotated_digits", "smoke")
    assert {row["arm"]: row["trials"] for row in plan["arms"]} == ARMS
    assert plan["arms"][0]["hours"] == pytest.approx(20 * 2 / 3600)


ARMS = {"partitioned": 1, "random": 2, "none": 1, "partitioned_retrained": 1}


def test_programs_get_no_nan_and_people_get_whole_lines_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"a": math.nan, "b": Path("x")}, {"a": 1.5, "b": [1, None]}]
    write(Form.JSON, "rows", rows, run="r")
    assert json.loads(capsys.readouterr().out) == {
        "run": "r",
        "rows": [{"a": None, "b": "x"}, {"a": 1.5, "b": [1, None]}],
    }
    write(Form.CSV, "rows", rows)
    assert capsys.readouterr().out == 'a,b\n,x\n1.5,"[1, null]"\n'
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal().width == PIPE_WIDTH
    output = invoke("searches")
    assert all(load.question(p) in output and str(p) in output for p in load.available().values())
    assert terminal(Form.JSON).stderr


@pytest.fixture
def run(elsewhere: Path, null_search, null_arm) -> runs.Run:
    search = null_search(null_arm("a"), null_arm("b"))
    made = runs.create(elsewhere / "results", search, command="", storage=None)
    executors.execute(search, folder=made.folder, place=executors.Place("local", workers=1))
    return made


def test_a_report_for_programs_has_the_answer_and_writes_nothing(run: runs.Run) -> None:
    found = json.loads(invoke("report", "--json"))
    assert found["run"] == run.name
    assert found["answer"]
    assert [row["arm"] for row in found["arms"]] == ["a", "b"]
    assert not (run.folder / "report").exists()
    compared = json.loads(invoke("compare", "--pairs", "a:b", "--json"))
    assert compared["run"] == run.name
    assert len(compared["comparisons"]) == 1


def test_a_report_tells_the_answer_first_and_its_files_in_one_line(
    run: runs.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = run.folder / "report" / "report.html"
    monkeypatch.setattr(
        tuneparts.Results, "write_report", lambda _: {"report.html": page, "b": page}
    )
    answer = tuneparts.load(None).answer
    lines = invoke("report").splitlines()
    said = " ".join(lines)
    assert said.startswith(" ".join(answer.split())[:60])
    assert lines[-1].startswith(f"report      results/{run.name}/report/report.html (with ")
    assert sum("report.html" in line for line in lines) == 1


def test_fields_of_configs_inside_are_told_with_bounds_and_defaults() -> None:
    found = {one.path: one for one in _listing.fields_of(catalog.config_class("standard"))}
    assert found["optimiser.lr"].takes == "number > 0"
    assert found["optimiser.lr"].default == "0.001"
    assert found["net"].takes == "a net of `tuneparts nets`"
    assert found["hypers.affine"].takes == "lila or benton or schwoebel or none"
    assert "hypers.affine.rotation" in found
    assert "Radians" in found["hypers.affine.rotation"].meaning


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["methods", "standart"], "Did you mean `standard`"),
        (["nets", "resnet"], "Did you mean `resnet"),
        (["data", "digit"], "Did you mean `digits`"),
        (["searches", "rotated"], "Did you mean `rotated"),
    ],
)
def test_unknown_names_are_told(words: list[str], said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        invoke(*words)


def test_a_new_search_runs_as_it_is(elsewhere: Path) -> None:
    said = invoke("new", "mine")
    assert "tuneparts search mine --scale smoke" in said
    search = load.load("mine", scale="smoke")
    assert search.name == "mine"
    executors.execute(search, folder=elsewhere / "run", place=executors.Place("local", workers=1))
    for scale in ("cpu", "paper"):
        load.load("mine", scale=scale)
    for name, why in (
        ("mine", "is there already"),
        ("rotated_digits", "has a search of this name"),
        ("A b", "named by"),
    ):
        with pytest.raises(ConfigError, match=why):
            invoke("new", name)


def test_the_version_and_completion_are_told() -> None:
    assert invoke("--version").startswith("tuneparts 0.")
    assert "--install-completion" in invoke("--help")


def test_a_doctor_tells_what_is_absent_and_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("packages", "torchvision", "devices", "ray", "store", "data", "searches", "chromium")
    for name in names:
        monkeypatch.setattr(_doctor, f"_{name}", lambda: "it answers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = json.loads(invoke("doctor", "--json"))
    states = {row["check"]: row["state"] for row in found["checks"]}
    assert states["dashboard"] == "absent"
    assert set(states.values()) == {"ok", "absent"}
    assert found["next"] == "tuneparts search rotated_digits --scale smoke"
    monkeypatch.setattr(_doctor, "LEAST_SPACE", 1e30)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "Next: mend what FAILED" in result.output


def test_servers_refuse_a_used_port_before_they_tell_an_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for verb in ("ui", "dashboard"):
            result = CliRunner().invoke(app, [verb, "--port", port])
            assert isinstance(result.exception, _PortError)
            assert "http" not in result.output


def test_a_browser_is_led_to_a_page_by_a_private_file(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    seen = []

    def browse(address: str) -> None:
        file = Path(address.removeprefix("file://"))
        seen.append((file.read_text(), file.stat().st_mode & 0o777, "token" in address))

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr(serving, "READ_BY_THEN", 0.0)
    serving._open_now("http://127.0.0.1:1/?token=a&b=c")
    assert seen == [
        (
            '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:1/?token=a&amp;b=c">',
            0o600,
            False,
        )
    ]
    assert list(elsewhere.glob("*.html")) == []
    assert not serving._answers("127.0.0.1", 9, patience=0.3)
