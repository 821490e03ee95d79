import pytest

from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.figures.gallery import FIGURES, draw, parse
from tuneparts.reports.run_data import RunData
from tuneparts.search.spec import Search

DEFAULT_FIGURES = Search.model_fields["figures"].default
MEMBERS = ("anytime", "interpolation", "membership")
ASKED = [*DEFAULT_FIGURES, "sweep:param.lr", "heat_map:param.lr,param.width", *MEMBERS]
ASKED += ["deviations", "rounds"]
ASKED += ["samples", "calibration", "trials", "communication"]


def test_every_figure_is_asked_for_below():
    assert {request.partition(":")[0] for request in ASKED} == set(FIGURES)


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


def test_wrong_requests_are_refused_with_the_cure():
    with pytest.raises(UnknownNameError, match="`accuracy`"):
        parse("acuracy")
    with pytest.raises(ConfigError, match="heat_map:across,up"):
        parse("heat_map:param.lr")
    with pytest.raises(ConfigError, match="no arguments"):
        parse("hypers:param.lr")
    with pytest.raises(UnknownNameError, match="test/accuracy"):
        parse("sweep:param.lr,test/acuracy")
    with pytest.raises(UnknownNameError, match="hyper/rotation"):
        parse("sweep:hyper/rotaton")
