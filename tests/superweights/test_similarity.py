import math

import numpy as np
import pytest
import torch

from tuneparts.superweights import similarity
from tuneparts.superweights import ties as tying
from tuneparts.superweights.bank import TemplateBank
from tuneparts.superweights.layers import Layer
from tuneparts.superweights.plan import make_plan


def gradients(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_cosines_are_those_of_the_common_corner() -> None:
    one, other = gradients((3, 5, 9), (4, 2, 9))
    found = similarity.overlap_cosines([one, other])
    a, b = one[:3, :2].flatten().numpy(), other[:3, :2].flatten().numpy()
    assert found[0, 1] == pytest.approx(a @ b / math.sqrt((a @ a) * (b @ b)))
    assert found[1, 0] == found[0, 1]
    assert found[0, 0] == pytest.approx(1)


def test_a_layer_without_gradient_is_similar_to_nothing() -> None:
    one, other = gradients((2, 2, 1), (2, 2, 1))
    found = similarity.overlap_cosines([one, torch.zeros_like(other)])
    assert np.isnan(found[0, 1])


def test_summing_first_differs_from_averaging_cosines_but_not_by_order() -> None:
    batches = [gradients((2, 3, 1), (2, 3, 1), seed=seed) for seed in range(4)]
    total = [sum(parts) for parts in zip(*batches, strict=True)]
    backward = [sum(parts) for parts in zip(*batches[::-1], strict=True)]
    one, other = (similarity.overlap_cosines(list(g))[0, 1] for g in (total, backward))
    assert one == pytest.approx(other)
    mean = np.mean([similarity.overlap_cosines(batch)[0, 1] for batch in batches])
    assert abs(one - mean) > 0.01


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


def test_one_template_leaves_only_the_sign() -> None:
    found = similarity.row_cosines(torch.tensor([[0.1], [-3.0], [2.0]]))
    np.testing.assert_allclose(found, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]])


def test_agreement_of_two_halves() -> None:
    rng = np.random.default_rng(0)
    one = rng.uniform(-1, 1, 10)
    assert similarity.correlation([one[:4], one[4:]], [one * 2 + 1]) == pytest.approx(1)
    assert similarity.correlation([one], [np.full(10, np.nan)]) is None
    assert similarity.correlation([one[:2]], [one[:2]]) is None
    assert similarity.known_mean([one, np.array([np.nan])]) == pytest.approx(one.mean())
    assert similarity.known_mean([np.array([])]) is None
    matrix = np.arange(9.0).reshape(3, 3)
    assert similarity.pairs(matrix).tolist() == [3.0, 6.0, 7.0]
