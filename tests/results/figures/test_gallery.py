import sys
from dataclasses import replace

import pytest

from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results import running
from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.gallery import FIGURES, _parse, draw
from tuneparts.results.run_data import RunData
from tuneparts.search import card, runs
from tuneparts.search.spec import Search

DEFAULT_FIGURES = Search.model_fields["figures"].default
ARGUMENTS = {"sweep": "sweep:param.lr", "heat_map": "heat_map:param.lr,param.width"}
ASKED = [ARGUMENTS.get(name, name) for name in FIGURES.known]


@pytest.mark.parametrize("request_", ASKED)
def test_an_empty_run_gives_notes_and_no_exception(request_, trials, steps, metadata):
    assert isinstance(draw(request_, RunData(metadata, trials.iloc[:0], steps.iloc[:0])), Note)


@pytest.mark.parametrize("request_", DEFAULT_FIGURES)
def test_default_figures_have_data_caption_and_axis_titles(request_, trials, steps, metadata):
    drawing = draw(request_, RunData(metadata, trials, steps))
    assert isinstance(drawing, Drawing)
    assert len(drawing.data)
    assert drawing.caption.endswith(".")
    assert drawing.figure.layout.xaxis.title.text


def test_arguments_reach_the_figure(trials, steps, metadata):
    drawing = draw("accuracy:test/nll", RunData(metadata, trials, steps))
    assert drawing.figure.layout.yaxis.title.text == "test nll (nats) ↓"


def test_a_figure_of_an_arm_that_was_left_out_is_a_note(trials, steps, metadata):
    for request in ("deviations:absent", "heat_map:param.lr,param.width,test/nll,absent"):
        note = draw(request, RunData(metadata, trials, steps))
        assert note == Note(request, "It is about the arm `absent`, which this run does not have.")


def test_wrong_requests_are_refused_with_the_cure():
    with pytest.raises(UnknownNameError, match="`accuracy`"):
        _parse("acuracy")
    with pytest.raises(ConfigError, match="heat_map:across,up"):
        _parse("heat_map:param.lr")
    with pytest.raises(ConfigError, match="no arguments"):
        _parse("hypers:param.lr")
    with pytest.raises(UnknownNameError, match="test/accuracy"):
        _parse("sweep:param.lr,test/acuracy")
    with pytest.raises(UnknownNameError, match="hyper/rotation"):
        _parse("sweep:hyper/rotaton")


OWN = """
import pandas as pd
import plotly.graph_objects as go
from tuneparts.results.figures.drawing import Drawing

def counts(run_data):
    data = run_data.trials.groupby("arm", as_index=False).size()
    bars = go.Figure(go.Bar(x=data["arm"], y=data["size"]))
    return Drawing("Trials", bars, "Trials of each arm.", data)

def breaks(run_data):
    return run_data.trials["no such column"]

def words(run_data):
    return "a picture"

def two(run_data, metric):
    return counts(run_data)

number = 3
"""


@pytest.fixture
def own_figures(tmp_path, monkeypatch):
    """A module of somebody's own; returns the run data to draw."""
    (tmp_path / "own_figures.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_figures", None)


@pytest.mark.usefixtures("own_figures")
def test_a_function_of_ones_own_is_drawn_and_written(trials, steps, metadata, tmp_path):
    asked = replace(metadata, figures=("own_figures:counts", "own_figures:breaks"))
    drawing = draw("own_figures:counts", RunData(metadata, trials, steps))
    expected = trials["arm"].value_counts()
    assert dict(zip(drawing.data["arm"], drawing.data["size"], strict=True)) == expected.to_dict()
    paths = RunData(asked, trials, steps).write(tmp_path / "report")
    assert "figures/own_figures-counts.csv" in paths
    text = paths["report.html"].read_text("utf-8")
    assert "Trials of each arm." in text
    assert "It cannot be drawn here: KeyError" in text


@pytest.mark.usefixtures("own_figures")
@pytest.mark.parametrize("request_", ["nowhere:plot", "own_figures:no", "own_figures:number"])
def test_what_is_no_figure_is_refused_before_and_noted_after(request_, trials, steps, metadata):
    with pytest.raises(ConfigError, match=r"none of ours \(accuracy.*package.module:function"):
        _parse(request_)
    assert isinstance(draw(request_, RunData(metadata, trials, steps)), Note)


@pytest.mark.usefixtures("own_figures")
def test_what_takes_or_returns_something_else_is_told(trials, steps, metadata):
    with pytest.raises(ConfigError, match="called with the run's data"):
        _parse("own_figures:two")
    note = draw("own_figures:words", RunData(metadata, trials, steps))
    assert "this returned 'a picture'" in note.text


def test_a_method_brings_its_figures_into_the_report(null_search, null_arm, tmp_path, monkeypatch):
    search = null_search(null_arm("a"), figures=("scores",))
    run = runs.create(tmp_path, search, command="x", commit="abc", versions={}, storage=None)
    monkeypatch.setattr(type(search.arms[0].config), "figures", ("trials", "scores"))
    assert card.RunCard.of(run).figures == ("scores", "trials")
    monkeypatch.setattr(type(search.arms[0].config), "figures", ("trails",))
    with pytest.raises(UnknownNameError, match="`trials`"):
        running.check(search)
