from tuneparts.reports.figures.looks import COLOURS, looks
from tuneparts.reports.outline import ArmOutline, Outline


def outline_of(*names):
    return Outline("s", "q", tuple(ArmOutline(name, "m", 1, (0,)) for name in names))


def test_an_arm_keeps_its_colour_in_another_search():
    first = looks(outline_of("none", "random", "partitioned"))
    second = looks(outline_of("partitioned", "oracle", "random"))
    for arm in ("random", "partitioned"):
        assert first[arm] == second[arm]


def test_no_two_arms_look_alike():
    names = [f"arm {i}" for i in range(len(COLOURS) * 3)]
    seen = {(look.colour, look.dash) for look in looks(outline_of(*names)).values()}
    assert len(seen) == len(names)
    few = looks(outline_of(*names[: len(COLOURS)]))
    assert {look.colour for look in few.values()} == set(COLOURS)


def test_names_are_escaped():
    (look,) = looks(outline_of("<b>a</b>")).values()
    assert look.name == "&lt;b&gt;a&lt;/b&gt;"
