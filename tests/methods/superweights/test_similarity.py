import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.methods.superweights import _similarity as similarity
from tuneparts.methods.superweights import _ties as tying
from tuneparts.methods.superweights._allocation import make_plan
from tuneparts.methods.superweights._bank import TemplateBank
from tuneparts.methods.superweights._clusters import Layer
from tuneparts.methods.superweights._similarity import GradientSums, group, layer_similarities


def gradients(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_one_template_leaves_only_the_sign_and_no_gradient_no_similarity() -> None:
    (one,) = gradients((2, 2, 1))
    assert np.isnan(similarity.overlap_cosines([one, torch.zeros_like(one)])[0, 1])
    found = similarity.row_cosines(torch.tensor([[0.1], [-3.0], [2.0]]))
    np.testing.assert_allclose(found, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]])


def layer_gradients(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 2, 3, 3), (3, 5, 3, 3), (6, 6), (5, 6)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_halves_add_up_to_the_whole_and_are_handed_out_once() -> None:
    sums = GradientSums(torch.device("cpu"))
    for batch in range(5):
        sums.add(layer_gradients(batch), half=batch % 2)
    total, halves = sums.take()
    for layer, whole in enumerate(total):
        torch.testing.assert_close(whole, sum(layer_gradients(batch)[layer] for batch in range(5)))
        torch.testing.assert_close(
            halves[1][layer], layer_gradients(1)[layer] + layer_gradients(3)[layer]
        )
    assert sums.state_dict() == {"halves": []}


def test_a_state_is_a_copy() -> None:
    sums, other = GradientSums(torch.device("cpu")), GradientSums(torch.device("cpu"))
    sums.add(layer_gradients(0), half=0)
    other.load_state_dict(sums.state_dict())
    sums.add(layer_gradients(1), half=0)
    torch.testing.assert_close(other.take()[0], layer_gradients(0))


def test_similarities_are_within_bins_and_over_common_corners() -> None:
    layers = layer_gradients(0)
    found = layer_similarities(layers, [0, 0, 1, 1])
    assert {label: matrix.shape for label, matrix in found.items()} == {0: (2, 2), 1: (2, 2)}
    a, b = layers[0][:3, :2].flatten(), layers[1][:3, :2].flatten()
    assert found[0][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=0)))
    a, b = layers[2][:5].flatten(), layers[3].flatten()
    assert found[1][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=0)))


def test_evidence_is_left_out_where_it_is_not_defined() -> None:
    matrix = np.array([[1, 0.2, 0.4], [0.2, 1, 0.6], [0.4, 0.6, 1]])
    full = similarity.metrics({0: matrix}, [{0: matrix}, {0: 2 * matrix}])
    assert full["superweights/similarity"] == pytest.approx(0.4)
    assert full["superweights/split_half"] == pytest.approx(1)
    nothing = np.full((3, 3), np.nan)
    assert similarity.metrics({0: nothing}, [{0: nothing}, {0: nothing}]) == {}


def queue_reference(similarity: np.ndarray, threshold: float) -> list[set[int]]:
    """Algorithm 1 as it is written: pairs by descending similarity, groups as sets."""
    groups = [{i} for i in range(len(similarity))]
    pairs = [(similarity[i, j], i, j) for i in range(len(similarity)) for j in range(i)]
    for value, i, j in sorted(pairs, reverse=True):
        if value > threshold:
            one = next(g for g in groups if i in g)
            other = next(g for g in groups if j in g)
            if one is not other:
                groups.remove(other)
                one |= other
    return groups


def symmetric(rng: np.random.Generator, num: int) -> np.ndarray:
    matrix = rng.uniform(-1, 1, (num, num))
    return np.tril(matrix, -1) + np.tril(matrix, -1).T + np.eye(num)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.floats(-1.2, 1.2), st.integers(0, 10**6))
def test_groups_are_those_of_the_queue(num, threshold, seed) -> None:
    similarity = symmetric(np.random.default_rng(seed), num)
    labels = group(similarity, threshold)
    ours = {frozenset(np.flatnonzero(np.array(labels) == k)) for k in set(labels)}
    assert ours == {frozenset(g) for g in queue_reference(similarity, threshold)}


def test_one_item_equality_one_direction_and_not_a_number() -> None:
    assert group(np.ones((1, 1)), 0.0) == [0]
    equal = np.array([[1.0, 0.1], [0.1, 1.0]])
    assert group(equal, 0.1) == [0, 1]
    assert group(np.array([[1.0, 0.0], [0.4, 1.0]]), 0.1) == [0, 0]
    assert group(np.full((2, 2), np.nan), -2.0) == [0, 1]


@pytest.mark.parametrize("is_tied", [True, False])
def test_cosines_on_templates_are_those_on_weights_times_those_of_coefficients(
    is_tied: bool,
) -> None:
    layers = [Layer(m, "l", "linear", 4, 3, ()) for m in range(2)]
    plan = make_plan(layers, [0, 0], budget=12 * 5)
    ties = tying.shared(plan) if is_tied else tying.private(plan)
    bank = TemplateBank(
        plan, ties, initialisation="fan_in", generator=torch.Generator().manual_seed(0)
    ).double()
    with torch.no_grad():
        bank.coefficients_RK[0].normal_(generator=torch.Generator().manual_seed(1))
    own = gradients((4, 3), (4, 3))
    sent = [
        torch.autograd.grad(bank.compose()[use], bank.templates_KD[0], own[use])[0].flatten()
        for use in range(2)
    ]
    alphas = [bank.coefficients_RK[0][row] for row in ties[0]]
    on_templates = torch.cosine_similarity(sent[0], sent[1], dim=0)
    on_weights = similarity.overlap_cosines([g[..., None] for g in own])[0, 1]
    on_alphas = torch.cosine_similarity(alphas[0], alphas[1], dim=0)
    assert float(on_templates.detach()) == pytest.approx(on_weights * float(on_alphas.detach()))
    assert not is_tied or float(on_alphas.detach()) == pytest.approx(1)
