import math

import numpy as np
import pytest
import torch

from tuneparts.training.scores import scores


def slow_scores(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """One example at a time."""
    n = len(labels)
    right = [int(p.argmax() == y) for p, y in zip(probs, labels, strict=True)]
    bins: dict[int, list[tuple[float, int]]] = {}
    for p, hit in zip(probs, right, strict=True):
        bins.setdefault(math.ceil(p.max() * 15) - 1, []).append((p.max(), hit))
    return {
        "accuracy": sum(right) / n,
        "nll": -sum(math.log(p[y]) for p, y in zip(probs, labels, strict=True)) / n,
        "brier": sum(
            sum((p[k] - (k == y)) ** 2 for k in range(len(p)))
            for p, y in zip(probs, labels, strict=True)
        )
        / n,
        "ece": sum(
            len(b) / n * abs(np.mean([c for c, _ in b]) - np.mean([h for _, h in b]))
            for b in bins.values()
        ),
    }


@pytest.mark.parametrize("num_classes", [2, 10])
def test_scores_equal_the_definitions(num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_classes, (200,), generator=generator)
    expected = slow_scores(logits.softmax(1).numpy(), labels.numpy())
    assert scores(logits, labels) == pytest.approx(expected, abs=1e-6)


def test_a_certain_and_right_prediction_is_perfect() -> None:
    logits = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    found = scores(logits, torch.tensor([0, 1]))
    assert found == pytest.approx({"accuracy": 1, "nll": 0, "ece": 0, "brier": 0}, abs=1e-12)
