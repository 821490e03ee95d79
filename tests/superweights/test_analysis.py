import numpy as np
import pytest
import torch

from tuneparts.superweights.analysis import GradientSums, evidence, layer_similarities


def gradients(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 2, 3, 3), (3, 5, 3, 3), (6, 6), (5, 6)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_halves_add_up_to_the_whole_and_are_handed_out_once() -> None:
    sums = GradientSums()
    for batch in range(5):
        sums.add(gradients(batch), half=batch % 2)
    total, halves = sums.take()
    for layer, whole in enumerate(total):
        torch.testing.assert_close(whole, sum(gradients(batch)[layer] for batch in range(5)))
        torch.testing.assert_close(halves[1][layer], gradients(1)[layer] + gradients(3)[layer])
    assert sums.state() == []


def test_a_state_is_a_copy() -> None:
    sums, other = GradientSums(), GradientSums()
    sums.add(gradients(0), half=0)
    other.load(sums.state(), torch.device("cpu"))
    sums.add(gradients(1), half=0)
    torch.testing.assert_close(other.take()[0], gradients(0))


def test_similarities_are_within_bins_and_over_common_corners() -> None:
    layers = gradients(0)
    found = layer_similarities(layers, [0, 0, 1, 1])
    assert {label: matrix.shape for label, matrix in found.items()} == {0: (2, 2), 1: (2, 2)}
    a, b = layers[0][:3, :2].flatten(), layers[1][:3, :2].flatten()
    assert found[0][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=0)))
    a, b = layers[2][:5].flatten(), layers[3].flatten()
    assert found[1][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=0)))


def test_evidence_is_left_out_where_it_is_not_defined() -> None:
    matrix = np.array([[1, 0.2, 0.4], [0.2, 1, 0.6], [0.4, 0.6, 1]])
    full = evidence({0: matrix}, [{0: matrix}, {0: 2 * matrix}])
    assert full["superweights/similarity"] == pytest.approx(0.4)
    assert full["superweights/split_half"] == pytest.approx(1)
    nothing = np.full((3, 3), np.nan)
    assert evidence({0: nothing}, [{0: nothing}, {0: nothing}]) == {}
