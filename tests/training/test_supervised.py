"""When the last stage of a run begins, and how far it is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.training.config import ReleaseConfig


@settings(max_examples=100, deadline=None)
@given(fraction=st.floats(0.001, 0.999), passes=st.integers(2, 10_000))
def test_both_stages_have_passes_and_progress_runs_over_each(fraction, passes):
    config = ReleaseConfig(fraction=fraction)
    start = config.start(passes)
    assert 1 <= start <= passes - 1
    assert config.progress(0, passes) == config.progress(start, passes) == 0
    assert config.progress(passes, passes) == 1
    assert abs((passes - start) - fraction * passes) <= 1
