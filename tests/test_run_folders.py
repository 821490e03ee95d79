"""The two laws of a run's folder: reading calls nothing, and nothing outside of it is touched."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuneparts.cli.main import app
from tuneparts.search import runs

RECORDED = Path(__file__).parent / "recorded" / "runs"
CALLED = "subprocess:getoutput"
SECRET = "what nobody else should read"
OPTUNA = {"kind": "optuna", "num_trials": 6, "sampler": CALLED}
CARDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sampler": ("random", {}, {"algorithm": OPTUNA}),
    "constraint": ("random", {}, {"constraint": CALLED}),
    "objective": ("random", {}, {"config.function": CALLED}),
    "net": ("own", {}, {"config.net": {"name": CALLED}}),
    "data": ("partitioned", {"data.name": CALLED, "figures": ["samples"]}, {}),
}
"""Where a card names a function: the run, and what its search and its first arm are changed to."""


def invoke(*words: str) -> str:
    """What a verb says, however it ends."""
    result = CliRunner().invoke(app, words)
    return f"{result.output}{result.exception or ''}"


def brought(results: Path, name: str) -> Path:
    """The folder of a run that somebody else has made."""
    shutil.copytree(RECORDED / name, results / name)
    return runs.named(results, name).folder


def put(tree: dict[str, Any], changes: dict[str, Any]) -> None:
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        node = tree
        for parent in parents:
            node = node[parent]
        node[leaf] = value


@pytest.mark.mlflow
@pytest.mark.parametrize("case", list(CARDS))
def test_reading_a_run_calls_nothing(results: Path, monkeypatch, case: str) -> None:
    name, of_search, of_arm = CARDS[case]
    calls: list[Any] = []
    monkeypatch.setattr(subprocess, "getoutput", lambda *_, **__: calls.append(case))
    folder = brought(results, name)
    card = json.loads((folder / "run.json").read_text())
    put(card["search"], of_search)
    put(card["search"]["arms"][0], of_arm)
    (folder / "run.json").write_text(json.dumps(card))
    assert folder.name in invoke("report", name)  # it was read
    for words in (("compare",), ("export", "--to", "csv"), ("sync",)):
        invoke(*words, name)
    assert calls == []


TRIALS = "trials/fails/seed0"
LINKS = {
    "report": ["report/"],
    "figures": ["report/figures/"],
    "export": ["export/"],
    "trials": ["trials/"],
    "arm": ["trials/fails/"],
    "code": ["code/notes/"],
    "a file of code": ["code/notes.py"],
    "card of MLflow": ["tracking.json"],
    "deep": [
        "report/notes/", "report/notes.txt", "report/figures/notes/", "report/figures/notes.txt",
        f"{TRIALS}/00000/", f"{TRIALS}/00002/r000-p000000008.pt", f"{TRIALS}/00001/log/",
        f"{TRIALS}/00003/log/log.txt",
    ],
}  # fmt: skip
"""Links to a folder, with a slash at their end, and to files."""


@pytest.mark.mlflow
@pytest.mark.parametrize("case", list(LINKS))
def test_nothing_outside_a_run_s_folder_is_read_deleted_or_sent(
    results: Path, tmp_path_factory: pytest.TempPathFactory, case: str
) -> None:
    precious = tmp_path_factory.mktemp("precious")
    for name in ("scores.html", "log.txt", "r000-p000000008.pt"):
        (precious / name).write_text(SECRET)
    before = sorted(precious.iterdir())
    folder = brought(results, "retried")
    for place in LINKS[case]:
        link = folder / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(precious if place.endswith("/") else precious / "log.txt")
    verbs = [("export", "--to", "csv"), ("report",), ("resume", "--local")]
    said = [invoke(*words, "retried") for words in verbs]
    assert any("leads out" in one for one in said) == (case not in ("arm", "deep")), said
    assert sorted(precious.iterdir()) == before
    assert {path.read_text() for path in before} == {SECRET}
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    files = [path for path in results.rglob("*") if path.is_file() and path not in links]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert case != "deep" or [path for path in files if path.match("artifacts/report/report.html")]


@pytest.mark.mlflow
def test_what_a_map_of_mlflow_names_elsewhere_is_not_sent(results: Path, tmp_path_factory) -> None:
    secret = tmp_path_factory.mktemp("precious") / "secret.txt"
    secret.write_text(SECRET)
    folder = brought(results, "retried")
    named = [str(secret), os.path.relpath(secret, folder), "run.json"]
    content = {"key": "k", "parent": None, "trials": {}, "artifacts": named}
    (folder / "tracking.json").write_text(json.dumps(content))
    invoke("sync", "retried")
    sent = {path.name for path in results.rglob("artifacts/*")}
    assert "run.json" in sent
    assert "secret.txt" not in sent
