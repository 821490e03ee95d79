import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.hypers.hypers import average


def some_logits(num: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(num, 4, generator=generator, dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), num_samples=st.integers(2, 6))
def test_both_rules_equal_loops_over_examples(seed, num_samples):
    logits = some_logits(3 * num_samples, seed)
    for b in range(3):
        own = logits[b * num_samples : (b + 1) * num_samples].numpy()
        by_logits = average(logits, num_samples, "logits")[b].numpy()
        np.testing.assert_allclose(by_logits, sum(own) / num_samples, atol=1e-12)
        probabilities = sum(scipy.special.softmax(row) for row in own) / num_samples
        by_prob = average(logits, num_samples, "prob")[b].numpy()
        np.testing.assert_allclose(np.exp(by_prob), probabilities, atol=1e-12)


def test_mean_logits_are_renormalised_mean_log_probabilities():
    logits = some_logits(10)
    mean_log_prob = logits.log_softmax(1).view(2, 5, 4).mean(1).log_softmax(1)
    torch.testing.assert_close(average(logits, 5, "logits").log_softmax(1), mean_log_prob)


def test_averaging_probabilities_is_another_prediction():
    logits = some_logits(10)
    by_logits = average(logits, 5, "logits").softmax(1)
    by_prob = average(logits, 5, "prob").softmax(1)
    assert (by_logits - by_prob).abs().max() > 0.05


@pytest.mark.parametrize("rule", ["logits", "prob"])
def test_one_sample_comes_back_unchanged(rule):
    logits = some_logits(4)
    assert average(logits, 1, rule) is logits


def test_very_unlikely_classes_do_not_underflow():
    logits = torch.tensor([[0.0, -500.0], [0.0, -500.0]])
    assert average(logits, 2, "prob")[0, 1].item() == pytest.approx(-500)
