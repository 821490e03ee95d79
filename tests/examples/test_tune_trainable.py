"""The example of a method in a Tuner of one's own, run small, and restored when it is over."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.ray


@pytest.mark.slow
def test_stock_searcher_and_scheduler_drive_it(local_ray, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent.parent / "examples")
    import tune_trainable

    tuner = tune_trainable.tuner(
        steps=16, num_samples=3, storage_path=str(tmp_path), name="exp", verbose=0
    )
    found = tuner.fit()
    assert not found.errors
    assert len(found) == 3
    best = found.get_best_result()
    assert best.metrics["lml/per_example"] == max(one.metrics["lml/per_example"] for one in found)
    assert (Path(best.checkpoint.path) / "state.pt").exists()
    assert len({one.config["optimiser.lr"] for one in found}) == 3
    assert any(one.metrics["cost/steps"] == 16 for one in found)
