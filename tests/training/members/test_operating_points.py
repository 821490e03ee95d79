import pytest
import torch

from tuneparts.data.target import Classes
from tuneparts.training.predictions import operating_points, subsets


@pytest.mark.parametrize("num", [1, 2, 4, 6])
def test_every_subset_is_there_once(num: int) -> None:
    found = subsets(num)
    assert len(found) == len(set(found)) == 2**num - 1
    assert found[-1] == tuple(range(num))


def test_large_ensembles_have_their_prefixes() -> None:
    assert subsets(7) == [tuple(range(size)) for size in range(1, 8)]


def test_costs_add_up_and_the_full_set_is_the_ensemble() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 20, 4, generator=generator), torch.arange(20) % 4
    points = operating_points(logits, labels, [10, 1, 100])
    assert [point.flops for point in points] == [1, 10, 11, 100, 101, 110, 111]
    assert points[2].name == "0_1"
    whole = Classes().scores(Classes().combined(logits), labels)
    assert (points[-1].accuracy, points[-1].nll) == (whole["accuracy"], whole["nll"])
    alone = Classes().scores(logits[1], labels)
    assert points[0].nll == pytest.approx(alone["nll"])
