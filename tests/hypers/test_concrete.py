import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import Call, Dropout, Mask, Shapes
from tuneparts.hypers.parts import DropoutSlot, _dropping, _NumberedPart


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dropout_of(*rates: float, learnable: bool, tau: float = 0.1) -> _NumberedPart:
    shapes = Shapes(num_slots=len(rates))
    return Dropout(rate=rates, tau=tau).part(shapes, name="dropout", learnable=learnable)


def relaxed(logits: torch.Tensor, shape: list[int], *, tau: float) -> torch.Tensor:
    now = Call(dropout_of(0.5, learnable=True), stream(), training=True)
    return now.relaxed(logits, shape, tau=tau)


def uniform(*shape: int) -> np.ndarray:
    return torch.rand(shape, generator=stream(), dtype=torch.float64).numpy()


def test_relaxation_is_the_formula_of_maddison():
    logits = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    found = relaxed(logits, [4, 3], tau=0.3)
    u = uniform(4, 3)
    wanted = 1 / (1 + np.exp(-(logits.numpy() + np.log(u) - np.log(1 - u)) / 0.3))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("tau", [0.1, 2 / 3])
def test_relaxed_draws_exceed_one_half_as_often_as_the_probability_says(tau):
    logit = torch.tensor(0.3).logit()
    draws = relaxed(logit, [20000], tau=tau)
    assert (draws > 0.5).float().mean().item() == pytest.approx(0.3, abs=4 * (0.21 / 20000) ** 0.5)


def test_a_low_temperature_is_nearly_a_bernoulli_draw():
    draws = relaxed(torch.tensor(0.0), [1000], tau=1e-3)
    assert ((draws < 0.01) | (draws > 0.99)).float().mean() > 0.98


class TestConcreteDropout:
    def test_learnable_rates_drop_by_the_relaxed_formula(self):
        dropout = dropout_of(0.1, 0.4, tau=0.2, learnable=True).double()
        h = torch.ones(5, 6, dtype=torch.float64)
        found = dropout(h, 1, stream()).detach().numpy()
        u = uniform(5, 6)
        logit = dropout.rates.raw[1].item()
        p = 1 / (1 + np.exp(-logit))
        z = 1 / (1 + np.exp(-(logit + np.log(u) - np.log(1 - u)) / 0.2))
        np.testing.assert_allclose(found, (1 - z) / (1 - p), rtol=1e-10)

    def test_draws_of_zero_give_a_finite_gradient(self):
        logit = torch.zeros(1, requires_grad=True)
        torch.sigmoid((logit + torch.logit(torch.zeros(1))) / 0.1).sum().backward()
        assert logit.grad.item() == 0

    def test_fixed_rates_are_ordinary_dropout(self):
        h = torch.ones(20000)
        out = dropout_of(0.25, learnable=False)(h, 0, stream())
        assert out.unique().tolist() == pytest.approx([0, 1 / 0.75])
        assert out.mean().item() == pytest.approx(1, abs=4 * (0.25 / 0.75 / 20000) ** 0.5)

    def test_a_rate_near_zero_is_nearly_the_identity_and_zero_is_it(self):
        h = torch.rand(1000, generator=stream(1))
        nearly = dropout_of(1e-6, learnable=True)(h, 0, stream())
        torch.testing.assert_close(nearly, h, rtol=0, atol=1e-5)
        fixed = dropout_of(0.0, 0.0, learnable=False)
        assert fixed.is_identity
        assert fixed(h, 1, stream()) is h

    def test_one_rate_serves_all_slots_but_two_do_not_serve_three(self):
        assert (
            len(
                Dropout(rate=0.2)
                .part(Shapes(num_slots=3), name="dropout", learnable=False)
                .values()
            )
            == 3
        )
        with pytest.raises(ConfigError, match="got 2 for 3"):
            Dropout(rate=(0.2, 0.1)).part(Shapes(num_slots=3), name="dropout", learnable=False)

    def test_dropping_everything_is_refused(self):
        for rate in (1.0, (0.5, 1.0)):
            with pytest.raises(ConfigError, match="less than 1"):
                parse(Dropout, {"rate": rate})


class TestInputMask:
    def test_learnable_masks_multiply_by_relaxed_draws_without_rescaling(self):
        mask = (
            Mask(keep=(0.5, 0.8), tau=0.2).part(Shapes((2,)), name="mask", learnable=True).double()
        )
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        u = uniform(2, 2)
        logits = mask.keep.raw.detach().numpy()
        kept = 1 / (1 + np.exp(-(logits + np.log(u) - np.log(1 - u)) / 0.2))
        found = mask(x, stream(), training=True).detach().numpy()
        np.testing.assert_allclose(found, x.numpy() * kept, rtol=1e-10)

    def test_evaluation_is_deterministic_by_probability_or_rounding(self):
        x = torch.tensor([[1.0, 1.0, 1.0]])
        keep = (0.25, 0.5, 0.75)
        draws = stream()
        before = draws.get_state()
        by_probability = Mask(keep=keep).part(Shapes((3,)), name="mask", learnable=False)
        assert by_probability(x, draws, training=False).tolist() == [[0.25, 0.5, 0.75]]
        rounded = Mask(keep=keep, evaluation="rounded").part(
            Shapes((3,)), name="mask", learnable=False
        )
        assert rounded(x, draws, training=False).tolist() == [[0, 0, 1]]
        assert torch.equal(draws.get_state(), before)

    def test_a_fixed_mask_of_zeros_and_ones_is_the_same_in_training(self):
        mask = Mask(keep=(1.0, 0.0)).part(Shapes((2,)), name="mask", learnable=False)
        x = torch.tensor([[2.0, 3.0]])
        assert not mask.draws(training=True)
        for training in (True, False):
            assert mask(x, stream(), training=training).tolist() == [[2, 0]]

    def test_fixed_probabilities_draw_hard_masks_for_each_example(self):
        mask = Mask(keep=0.3).part(Shapes((1, 4, 4)), name="mask", learnable=False)
        out = mask(torch.ones(500, 1, 4, 4), stream(), training=True)
        assert set(out.unique().tolist()) == {0, 1}
        assert out.mean().item() == pytest.approx(0.3, abs=4 * (0.21 / 8000) ** 0.5)

    def test_values_count_the_kept_and_list_vectors_only(self):
        values = (
            Mask(keep=(0.4, 0.6, 0.9)).part(Shapes((3,)), name="mask", learnable=False).values()
        )
        assert values == {"num_kept": 2, "keep.0": 0.4, "keep.1": 0.6, "keep.2": 0.9}
        assert [schema.lookup(f"hyper/{name}") for name in values]
        image = Mask(keep=1.0).part(Shapes((1, 2, 2)), name="mask", learnable=False)
        assert image.values() == {"num_kept": 4}
        assert image.is_identity


def small_net() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(4, 8), DropoutSlot(0, 0.0), nn.Linear(8, 3), DropoutSlot(1, 0.0))
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=stream(number)))
    return net


def test_outside_a_drawing_block_a_slot_passes_on_what_came_in():
    h = torch.rand(3)
    assert DropoutSlot(0, 0.5).train()(h) is h


def test_inside_each_slot_drops_by_its_own_rate_from_the_given_generator():
    net, dropout, x = small_net(), dropout_of(0.2, 0.6, learnable=True), torch.ones(5, 4)
    with _dropping(dropout, stream()) as seen:
        found = net(x)
    draws = stream()
    hidden = dropout(net[0](x), 0, draws)
    wanted = dropout(net[2](hidden), 1, draws)
    assert torch.equal(found, wanted)
    assert seen.num_reads == 2
    assert torch.equal(net(x), net[2](net[0](x)))


def test_rates_are_no_parameters_of_the_net_but_get_its_gradient():
    net, dropout = small_net(), dropout_of(0.2, 0.6, learnable=True)
    assert len(list(net.parameters())) == 4
    with _dropping(dropout, stream()):
        net(torch.ones(5, 4)).square().sum().backward()
    assert (dropout.rates.raw.grad.abs() > 0).all()


def test_copies_and_functional_calls_hear_the_same_block():
    net, dropout, x = small_net(), dropout_of(0.2, 0.6, learnable=True), torch.ones(5, 4)
    with _dropping(dropout, stream()):
        wanted = net(x)
    with _dropping(dropout, stream()):
        assert torch.equal(copy.deepcopy(net)(x), wanted)
    with _dropping(dropout, stream()):
        assert torch.equal(functional_call(net, dict(net.named_parameters()), (x,)), wanted)


def test_the_block_ends_also_after_an_error():
    slot = DropoutSlot(0, 0.0)
    try:
        with _dropping(dropout_of(0.5, learnable=False), stream()):
            raise KeyError
    except KeyError:
        pass
    h = torch.ones(4)
    assert slot(h) is h
