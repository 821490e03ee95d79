import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tuneparts.data.target import Classes
from tuneparts.training.predictions import differences


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def test_the_prediction_is_the_mean_of_probabilities() -> None:
    logits_MNK = logits(4, 7, 5)
    expected = logits_MNK.softmax(dim=2).mean(dim=0)
    torch.testing.assert_close(Classes().combined(logits_MNK).exp(), expected)


def test_extreme_logits_stay_finite() -> None:
    found = Classes().combined(torch.tensor([[[1e4, 0.0]], [[0.0, 1e4]]]))
    torch.testing.assert_close(found, torch.full((1, 2), math.log(0.5), dtype=torch.float64))


def test_the_ensemble_is_no_worse_than_its_members_on_average() -> None:
    logits_MNK, labels = logits(3, 50, 4), torch.arange(50) % 4
    together = F.nll_loss(Classes().combined(logits_MNK), labels)
    alone = torch.stack([F.cross_entropy(member, labels) for member in logits_MNK]).mean()
    assert together < alone


def test_differences_of_a_hand_example() -> None:
    predicted = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
    labels = torch.tensor([0, 0, 0, 1])
    found = differences(F.one_hot(predicted, 2).double(), labels)
    errors = [1 / 4, 1 / 4, 1 / 4]
    assert found["member_accuracy"] == pytest.approx(1 - np.mean(errors))
    assert found["disagreement"] == pytest.approx((2 / 4 + 2 / 4 + 2 / 4) / 3)
    assert found["diversity"] == pytest.approx(2.0)


def test_diversity_is_a_mean_over_ordered_pairs() -> None:
    predicted = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    found = differences(F.one_hot(predicted, 2).double(), torch.zeros(4, dtype=torch.long))
    errors = [0.5, 0.25, 0.0]
    differ = {(0, 1): 0.25, (0, 2): 0.5, (1, 2): 0.25}
    ratios = [
        differ[min(i, j), max(i, j)] / errors[i]
        for i in range(3)
        for j in range(3)
        if i != j and errors[i]
    ]
    assert found["diversity"] == pytest.approx(np.mean(ratios))


def test_equal_members_are_not_diverse_and_perfect_ones_have_none() -> None:
    one = logits(1, 20, 3)
    labels = (one[0].argmax(dim=1) + 1) % 3
    assert differences(one.repeat(3, 1, 1), labels)["diversity"] == 0
    perfect = differences(one.repeat(2, 1, 1), one[0].argmax(dim=1))
    assert perfect == {"member_accuracy": 1.0, "disagreement": 0.0}
    assert set(differences(one, labels)) == {"member_accuracy"}
