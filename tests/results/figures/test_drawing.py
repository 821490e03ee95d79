import math

import pytest

from tuneparts.results.figures._style import COLOURS, MOST_ARMS, arm_styles, focus_note, in_focus
from tuneparts.results.figures.drawing import _Canvas
from tuneparts.search.card import ArmCard, RunCard


def metadata_of(*names):
    return RunCard("s", "q", tuple(ArmCard(name, "m", 1, (0,)) for name in names))


@pytest.mark.parametrize(
    ("metric", "values", "least", "most"),
    [
        ("test/accuracy", [-4.0, 0.5, 4.1], -0.05, 1.05),
        ("test/nll", [-1.0, 0.1], -0.01, 0.2),
        ("hyper/rotation", [-4.0, 4.0], -5.0, 5.0),
        ("test/accuracy", [0.5], 0.4, 0.6),
    ],
)
def test_an_axis_ends_where_its_metric_does(metric, values, least, most):
    canvas = _Canvas(metadata_of("a"))
    canvas.bounded_axis("score", metric, [math.nan, math.inf])
    assert canvas.figure.layout.xaxis.range is None  # nothing finite leaves the axis to itself
    canvas.bounded_axis("score", metric, [*values, math.nan])
    low, high = canvas.figure.layout.xaxis.range
    assert least <= low < high <= most


def test_a_logarithmic_axis_says_so():
    canvas = _Canvas(metadata_of("a"))
    canvas.counts_axis("steps", [10, 20])
    assert canvas.figure.layout.xaxis.title.text == "steps"
    canvas.counts_axis("steps", [10, 2000])
    assert canvas.figure.layout.xaxis.title.text == "steps (log scale)"


def test_an_arm_keeps_its_colour_in_another_search():
    first = arm_styles(metadata_of("none", "random", "partitioned"))
    second = arm_styles(metadata_of("partitioned", "oracle", "random"))
    for arm in ("random", "partitioned"):
        assert first[arm] == second[arm]


def test_no_two_arms_look_alike():
    names = [f"arm {i}" for i in range(len(COLOURS) * 3)]
    seen = {(style.colour, style.dash) for style in arm_styles(metadata_of(*names)).values()}
    assert len(seen) == len(names)
    few = arm_styles(metadata_of(*names[: len(COLOURS)]))
    assert {style.colour for style in few.values()} == set(COLOURS)


def test_names_are_escaped():
    (style,) = arm_styles(metadata_of("<b>a</b>")).values()
    assert style.name == "&lt;b&gt;a&lt;/b&gt;"


def luminance(colour):
    """Relative luminance, by WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("ground", ["#ffffff", "#14171b", "#0e1117"])  # page, dark, dashboard
def test_every_colour_stands_out_from_every_ground(ground):
    for colour in COLOURS:
        dark, light = sorted([luminance(colour), luminance(ground)])
        assert (light + 0.05) / (dark + 0.05) >= 3, (colour, ground)


def test_all_arms_are_in_focus_while_there_are_colours():
    few = metadata_of(*(f"arm_{i}" for i in range(MOST_ARMS)))
    assert in_focus(few) == {arm.name for arm in few.arms}
    assert focus_note(few) == ""


def test_of_many_arms_usual_and_searching_ones_come_first_and_followers_last():
    arms = [ArmCard(f"arm_{i}", "m", 1, (0,)) for i in range(18)]
    arms += [ArmCard("partitioned", "m", 1, (0,)), ArmCard("tpe", "m", 9, (0,))]
    arms += [ArmCard("retrained", "m", 1, (0,), source="partitioned")]
    metadata = RunCard("s", "q", tuple(arms))
    shown = in_focus(metadata)
    assert len(shown) == MOST_ARMS
    assert {"partitioned", "tpe", "arm_0"} < shown
    canvas = _Canvas(metadata)
    for arm in ("retrained", "tpe", "tpe"):
        canvas.add(arm, [0], [1])
    assert [trace.visible for trace in canvas.figure.data] == ["legendonly", True, True]
    assert [trace.showlegend for trace in canvas.figure.data] == [True, True, False]
    assert "7 of 21 arms" in focus_note(metadata)
