from tuneparts.reports.figures.style import COLOURS, arm_styles
from tuneparts.reports.metadata import ArmMetadata, ReportMetadata


def metadata_of(*names):
    return ReportMetadata("s", "q", tuple(ArmMetadata(name, "m", 1, (0,)) for name in names))


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
