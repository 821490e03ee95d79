"""A learner that is run to its end, with a bar or a report."""

import io
import sys
import types

import pytest
import torch
from rich.console import Console

from tuneparts.data.task import NO_DATA
from tuneparts.testing.null import NullConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.progress import run_through


@pytest.fixture
def learner() -> Learner:
    config = NullConfig(steps=6, interval=2)
    return config.build(Context(task=NO_DATA, seed=0, device=torch.device("cpu")))


def shown(learner: Learner, *, is_terminal: bool, **options: object) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, force_jupyter=False, width=100)
    rows = run_through(learner, what="fit", steps=6, console=console, **options)
    assert [row["cost/steps"] for row in rows] == [2, 4, 6]
    assert learner.finished
    return text.getvalue()


def test_a_terminal_shows_a_bar(learner) -> None:
    text = shown(learner, is_terminal=True)
    assert "fit" in text
    assert "━" in text


def test_a_file_stays_empty(learner) -> None:
    assert shown(learner, is_terminal=False) == ""


def test_a_report_takes_the_place_of_the_bar(learner) -> None:
    told: list[object] = []
    assert shown(learner, is_terminal=True, report=told.append) == ""
    assert len(told) == 3


def test_a_notebook_shows_a_bar_without_widgets(learner, monkeypatch) -> None:
    seen: list[str] = []

    class Place:
        def update(self, html: str) -> None:
            seen.append(html)

    class Display(types.ModuleType):
        HTML = str

        @staticmethod
        def display(html: str, *, display_id: bool) -> Place:
            assert display_id
            seen.append(html)
            return Place()

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", Display("IPython.display"))
    console = Console(file=io.StringIO(), force_jupyter=True, width=100)
    run_through(learner, what="fit", steps=6, console=console)
    assert '<progress max="6" value="2">' in seen[2]
    assert "6 of 6 steps" in seen[-2]
    assert seen[-1] == ""  # gone at the end
