import pytest
import torch

from tuneparts.training.learner import available_device, to_csv


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


def test_a_table_as_text() -> None:
    text = to_csv({"layer": ["a,b", 'say "c"'], "mu": [0.1, -1 / 3], "count": [1, 20]})
    assert text == 'layer,mu,count\n"a,b",0.1,1\n"say ""c""",-0.333333,20\n'


def test_columns_have_one_length() -> None:
    with pytest.raises(ValueError, match="shorter"):
        to_csv({"a": [1.0, 2.0], "b": [1.0]})
