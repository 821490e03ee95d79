import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.methods.superweights.config import SharingStage, timetable

FRACTIONS = {"search": 0.1, "untie": 0.05, "analysis": 0.01}


def test_stages_follow_each_other() -> None:
    times = timetable(200, **FRACTIONS, learns=True, unties=True)
    stages = [times.at(passes) for passes in range(200)]
    counts = [stages.count(stage) for stage in SharingStage]
    assert counts == [20, 2, 10, 2, 166]
    assert stages == sorted(stages, key=list(SharingStage).index)


@pytest.mark.parametrize(
    ("learns", "unties", "first"),
    [
        (True, False, SharingStage.SEARCH),
        (False, True, SharingStage.TRAIN),
        (False, False, SharingStage.FINISH),
    ],
)
def test_stages_that_do_not_take_place_have_no_passes(learns, unties, first) -> None:
    times = timetable(100, **FRACTIONS, learns=learns, unties=unties)
    assert times.at(0) is first
    assert times.at(99) is SharingStage.FINISH
    seen = {times.at(passes) for passes in range(100)}
    assert (SharingStage.COMPARE_LAYERS in seen) == learns
    assert (SharingStage.COMPARE_USES in seen) == unties


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 1000))
def test_the_schedule_starts_again_with_the_weights(passes: int) -> None:
    times = timetable(passes, **FRACTIONS, learns=True, unties=True)
    assert times.progress(0) == times.progress(times.compare_layers) == 0
    assert times.progress(passes) == 1
