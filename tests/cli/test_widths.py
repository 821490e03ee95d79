"""What verbs print on narrow terminals: names, numbers and paths stay whole."""

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tuneparts.cli import _doctor, _estimate
from tuneparts.cli.main import app
from tuneparts.data import sets
from tuneparts.methods import catalog
from tuneparts.results.progress import _LiveView
from tuneparts.search import load


@pytest.fixture(params=[60, 80, 120])
def width(request, monkeypatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def invoke(width: int, *words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "…" not in result.output
    assert max(map(len, result.output.splitlines())) <= width
    return result.output


def test_data(width, monkeypatch) -> None:
    output = invoke(width, "data")
    for name, found, _ in sets.inventory():
        assert name in output
        if found is not None:
            assert len(found.where) > width - 2 or found.where in output
            for number in (found.num_train, found.num_test):
                assert number is None or f"{number:,}" in output


def test_methods(width) -> None:
    output = invoke(width, "methods")
    for name, target in catalog.METHODS.known.items():
        assert name in output
        # The longest class is wider than 60 characters, and goes on in the next line.
        assert len(target) > width - 2 or target in output
        assert target in "".join(output.split())


def test_searches(width) -> None:
    output = invoke(width, "searches")
    for name, path in load.available().items():
        assert name in output
        assert len(str(path)) > width - 2 or str(path) in output


def test_dry_run(width, monkeypatch) -> None:
    search = load.load("rotated_digits", scale="smoke")
    costs = {arm.name: 1234.5 for arm in search.arms}
    monkeypatch.setattr(_estimate, "seconds_per_arm", lambda *_: costs)
    output = invoke(width, "search", "rotated_digits", "--scale", "smoke", "--dry-run")
    for arm in search.arms:
        steps = arm.cost.expected * len(search.seeds_of(arm))
        hours = f"{costs[arm.name] * steps / 3600:.3f}"
        for text in (arm.name, arm.config.model_dump()["method"], f"{steps:,}", hours):
            assert text in output
    assert "not an epoch" in " ".join(output.split())


def test_doctor(width, monkeypatch, tmp_path) -> None:
    path = tmp_path / "results"
    for check in ("_packages", "_torchvision", "_devices", "_store", "_data", "_searches", "_ray"):
        monkeypatch.setattr(_doctor, check, lambda: "it answers")
    monkeypatch.setattr(_doctor, "_results", lambda: f"{path} (writable)")
    output = invoke(width, "doctor")
    assert len(str(path)) > width - 2 or str(path) in output
    assert "results folder" in output


def test_the_live_view(width) -> None:
    search = load.load("rotated_digits", scale="smoke")
    console = Console(file=io.StringIO(), width=width)
    console.print(_LiveView(search, console).render())
    text = console.file.getvalue()
    assert "…" not in text
    assert all(arm.name in text for arm in search.arms)
    assert "progress" in text
