"""When the last stage of a run begins, and how far it is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.training.config import Finetune


@settings(max_examples=100, deadline=None)
@given(fraction=st.floats(0.001, 0.999), steps=st.integers(2, 10_000))
def test_both_stages_have_steps_and_progress_runs_over_each(fraction, steps):
    config = Finetune(fraction=fraction)
    start = config.start(steps)
    assert 1 <= start <= steps - 1
    assert config.progress(0, steps) == config.progress(start, steps) == 0
    assert config.progress(steps, steps) == 1
    assert abs((steps - start) - fraction * steps) <= 1
