import pytest
import torch

from tuneparts.training.learner import available_device


@pytest.mark.parametrize(
    ("gpus", "is_there", "expected"),
    [
        (0, True, "cpu"),
        (0.5, True, "cuda"),
        (1, True, "cuda"),
        (1, False, "cpu"),
        (0, False, "cpu"),
    ],
)
def test_a_gpu_is_used_by_who_was_given_one(monkeypatch, gpus, is_there, expected) -> None:
    """A worker that was given none sees those of others."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert available_device(gpus).type == expected
