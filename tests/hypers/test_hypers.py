import copy
import io
import pickle

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from tuneparts.core.errors import ConfigError
from tuneparts.hypers import Hypers
from tuneparts.hypers.hypers import HyperModule, _average
from tuneparts.hypers.parts import DropoutSlot

EVERYTHING = Hypers(
    affine={"rotation": 0.4},
    colour={"brightness": 0.2, "contrast": 0.3},
    noise=0.1,
    mask={"keep": 0.7},
    temperature=1.4,
    dropout={"rate": 0.2},
    samples=3,
)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def image_net() -> nn.Sequential:
    return seeded(
        nn.Sequential(
            nn.Flatten(),
            nn.Linear(32, 6),
            nn.Dropout(0.0),
            nn.Tanh(),
            nn.Linear(6, 4),
            nn.Dropout(),
        )
    )


def vector_net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)))


def seeded(net: nn.Sequential) -> nn.Sequential:
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=stream(number)))
    return net


def images(num: int = 5) -> Tensor:
    return torch.rand(num, 2, 4, 4, generator=stream(77))


def built(config: Hypers, *, learnable: bool = True) -> tuple[HyperModule, nn.Sequential]:
    net = image_net()
    return config.build(learnable=learnable, net=net, in_shape=(2, 4, 4)), net


class TestWithoutParts:
    def test_a_prediction_is_the_net_itself_and_draws_nothing(self):
        net = vector_net()
        hypers = Hypers(samples=20).build(learnable=True, net=net, in_shape=(5,))
        x = torch.rand(3, 5, generator=stream())
        calls = []
        draws = stream()
        before = draws.get_state()

        def counted(inputs: Tensor) -> Tensor:
            calls.append(inputs)
            return net(inputs)

        for training in (True, False):
            logits = hypers.predict(counted, x, generator=draws, training=training)
            assert torch.equal(logits, net(x))
            assert hypers.num_samples(training=training) == 1
        assert calls[0] is x
        assert torch.equal(draws.get_state(), before)
        assert hypers.values() == {}
        assert hypers.learnable() == []

    def test_parts_without_effect_are_skipped_but_reported(self):
        zeros = dict.fromkeys(
            ("rotation", "translate_x", "translate_y", "scale_x", "scale_y", "shear"), 0.0
        )
        config = Hypers(
            affine=zeros,
            colour={"brightness": 0, "contrast": 0},
            noise=0,
            mask={"keep": 1.0},
            temperature=1,
            dropout={"rate": 0.0},
            samples=20,
        )
        hypers, net = built(config, learnable=False)
        x = images()
        assert hypers.num_samples(training=True) == 1
        logits = hypers.predict(net, x, generator=stream(), training=True)
        assert torch.equal(logits, net(x))
        assert hypers.values()["hyper/rotation"] == 0
        assert hypers.values()["hyper/temperature"] == 1


class TestPredict:
    @pytest.mark.parametrize("training", [True, False])
    def test_all_parts_act_in_the_documented_order(self, training):
        hypers, net = built(EVERYTHING)
        x, draws, plain = images(), stream(), nn.Sequential(*net)
        found = hypers.predict(net, x, generator=stream(), training=training)
        moved = hypers.mask(x.repeat_interleave(3, 0), draws, training=training)
        moved = hypers.colour(moved, draws)
        moved = hypers.affine(moved, 1, draws)
        moved = hypers.noise(moved, draws)
        if training:
            hidden = hypers.dropout(plain[:2](moved), 0, draws)
            logits = hypers.dropout(plain[3:5](hidden), 1, draws)
        else:
            logits = plain[4](plain[3](plain[:2](moved)))
        wanted = _average(logits, 3, "logits") / hypers.temperature.value.tensor()
        assert torch.equal(found, wanted)

    def test_samples_of_one_example_are_averaged_together(self):
        config = Hypers(affine={"translate_x": 0.5}, samples=4)
        hypers, net = built(config)
        net.eval()
        x = images(3)
        found = hypers.predict(net, x, generator=stream(), training=False)
        moved = hypers.affine(x, 4, stream())
        for b in range(3):
            wanted = net(moved[4 * b : 4 * b + 4]).mean(0)
            torch.testing.assert_close(found[b], wanted)

    def test_the_averaging_rule_is_the_one_asked_for(self):
        config = Hypers(noise=0.5, samples=6)
        by_logits, net = built(config)
        by_prob = config.replaced({"averaging": "prob"}).build(
            learnable=True, net=net, in_shape=(2, 4, 4)
        )
        a = by_logits.predict(net, images(), generator=stream(), training=False)
        b = by_prob.predict(net, images(), generator=stream(), training=False)
        torch.testing.assert_close(b.exp().sum(1), torch.ones(5))
        assert not torch.allclose(a.softmax(1), b.softmax(1), atol=1e-3)

    def test_evaluation_has_samples_of_its_own(self):
        hypers, _ = built(Hypers(noise=0.1, samples=4, eval_samples=9))
        assert hypers.num_samples(training=True) == 4
        assert hypers.num_samples(training=False) == 9
        same, _ = built(Hypers(noise=0.1, samples=4))
        assert same.num_samples(training=False) == 4

    def test_dropout_and_masks_alone_need_no_copies_in_evaluation(self):
        hypers, _ = built(Hypers(dropout={}, mask={}, samples=4))
        assert hypers.num_samples(training=True) == 4
        assert hypers.num_samples(training=False) == 1

    def test_vectors_take_masks_noise_and_temperature(self):
        net = vector_net()
        config = Hypers(mask={"keep": 0.6}, noise=0.1, temperature=2.0, samples=3)
        hypers = config.build(learnable=True, net=net, in_shape=(5,))
        x = torch.rand(4, 5, generator=stream(1))
        logits = hypers.predict(net, x, generator=stream(), training=True)
        assert logits.shape == (4, 4)
        functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()
        assert all((p.grad.abs() > 0).all() for p in hypers.learnable())

    def test_same_generator_same_prediction_and_no_global_draws(self):
        hypers, net = built(EVERYTHING)
        net.train()
        before = torch.get_rng_state()
        first = hypers.predict(net, images(), generator=stream(), training=True)
        again = hypers.predict(net, images(), generator=stream(), training=True)
        other = hypers.predict(net, images(), generator=stream(1), training=True)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), before)


class TestGradients:
    def test_a_weight_step_is_detached_from_the_hypers(self):
        hypers, net = built(EVERYTHING)
        with hypers.detached():
            logits = hypers.predict(net, images(), generator=stream(), training=True)
        logits.sum().backward()
        assert all(p.grad is None for p in hypers.learnable())
        assert all(p.grad is not None for p in net.parameters())
        assert all(p.requires_grad for p in hypers.learnable())
        attached = hypers.predict(net, images(), generator=stream(), training=True)
        assert torch.equal(attached, logits)

    def test_a_detached_prediction_with_fixed_weights_builds_no_graph(self):
        hypers, net = built(EVERYTHING)
        net.requires_grad_(False)
        with hypers.detached():
            logits = hypers.predict(net, images(), generator=stream(), training=True)
        assert not logits.requires_grad

    def test_detaching_ends_also_after_an_error(self):
        hypers, _ = built(EVERYTHING)
        with pytest.raises(KeyError), hypers.detached():
            raise KeyError
        assert all(p.requires_grad for p in hypers.learnable())


class TestDropoutSlots:
    def test_the_nets_layers_become_slots_and_its_parameters_stay_its_own(self):
        hypers, net = built(Hypers(dropout={"rate": (0.1, 0.3)}))
        slots = [module for module in net.modules() if isinstance(module, nn.Dropout)]
        assert [type(slot) for slot in slots] == [DropoutSlot, DropoutSlot]
        assert [slot.slot for slot in slots] == [0, 1]
        own = {id(p) for p in net.parameters()}
        assert not own & {id(p) for p in hypers.learnable()}
        assert len(own) == 4
        assert list(net.state_dict()) == list(image_net().state_dict())

    def test_dropping_does_not_depend_on_the_nets_mode(self):
        hypers, net = built(Hypers(dropout={}))
        x = images()
        trained = hypers.predict(net.train(), x, generator=stream(), training=True)
        assert torch.equal(
            hypers.predict(net.eval(), x, generator=stream(), training=True), trained
        )
        scored = hypers.predict(net.train(), x, generator=stream(), training=False)
        assert torch.equal(scored, hypers.predict(net, x, generator=stream(9), training=False))
        assert not torch.equal(scored, trained)

    def test_attaching_twice_or_under_other_hypers_does_no_harm(self):
        hypers, net = built(Hypers(dropout={}))
        wanted = hypers.predict(net, images(), generator=stream(), training=True)
        hypers.attach(net)
        again = Hypers(dropout={}).build(learnable=False, net=net, in_shape=(2, 4, 4))
        found = hypers.predict(net, images(), generator=stream(), training=True)
        assert torch.equal(found, wanted)
        assert again.dropout.rates.given == (0.1, 0.1)

    def test_a_net_that_was_not_attached_is_refused(self):
        hypers, _ = built(Hypers(dropout={}))
        with pytest.raises(ConfigError, match=r"hypers.attach\(net\)"):
            hypers.predict(image_net(), images(), generator=stream(), training=True)

    def test_a_net_without_slots_is_refused(self):
        with pytest.raises(ConfigError, match="0 layers of type Dropout"):
            Hypers(dropout={}).build(learnable=True, net=vector_net(), in_shape=(5,))

    def test_without_the_part_the_nets_own_rates_draw_from_the_calls_generator(self):
        hypers, net = built(Hypers())
        before = torch.get_rng_state()
        first = hypers.predict(net, images(), generator=stream(), training=True)
        second = hypers.predict(net, images(), generator=stream(), training=True)
        assert torch.equal(first, second)
        assert (first == 0).any()
        assert torch.equal(torch.get_rng_state(), before)
        assert hypers.learnable() == []
        assert hypers.values() == {"hyper/dropout.0": 0.0, "hyper/dropout.1": 0.5}


class TestState:
    def test_learnt_values_round_trip_as_plain_tensors(self):
        hypers, _ = built(EVERYTHING)
        with torch.no_grad():
            for parameter in hypers.learnable():
                parameter.add_(0.3)
        file = io.BytesIO()
        torch.save(hypers.state_dict(), file)
        file.seek(0)
        other, _ = built(EVERYTHING)
        assert other.values() != hypers.values()
        other.load_state_dict(torch.load(file, weights_only=True))
        assert other.values() == hypers.values()

    def test_frozen_parts_are_fixed_and_the_others_learnt(self):
        hypers, _ = built(EVERYTHING.replaced({"frozen": ("affine", "noise")}))
        assert len(hypers.learnable()) == 4
        assert not any("affine" in name or "noise" in name for name in hypers.state_dict())

    @pytest.mark.parametrize("learnable", [True, False])
    def test_copies_and_pickles_predict_alike(self, learnable):
        hypers, net = built(EVERYTHING, learnable=learnable)
        wanted = hypers.predict(net, images(), generator=stream(), training=True)
        for twin in (copy.deepcopy(hypers), pickle.loads(pickle.dumps(hypers))):
            found = twin.predict(net, images(), generator=stream(), training=True)
            assert torch.equal(found, wanted)

    def test_moving_to_another_precision_moves_everything(self):
        hypers, net = built(EVERYTHING, learnable=False)
        x = images().double()
        logits = hypers.double().predict(net.double(), x, generator=stream(), training=True)
        assert logits.dtype == torch.float64


def some_logits(num: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(num, 4, generator=generator, dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), num_samples=st.integers(2, 6))
def test_both_rules_equal_loops_over_examples(seed, num_samples):
    logits = some_logits(3 * num_samples, seed)
    for b in range(3):
        own = logits[b * num_samples : (b + 1) * num_samples].numpy()
        by_logits = _average(logits, num_samples, "logits")[b].numpy()
        np.testing.assert_allclose(by_logits, sum(own) / num_samples, atol=1e-12)
        probabilities = sum(scipy.special.softmax(row) for row in own) / num_samples
        by_prob = _average(logits, num_samples, "prob")[b].numpy()
        np.testing.assert_allclose(np.exp(by_prob), probabilities, atol=1e-12)


def test_mean_logits_are_renormalised_mean_log_probabilities():
    logits = some_logits(10)
    mean_log_prob = logits.log_softmax(1).view(2, 5, 4).mean(1).log_softmax(1)
    torch.testing.assert_close(_average(logits, 5, "logits").log_softmax(1), mean_log_prob)


def test_very_unlikely_classes_do_not_underflow():
    logits = torch.tensor([[0.0, -500.0], [0.0, -500.0]])
    assert _average(logits, 2, "prob")[0, 1].item() == pytest.approx(-500)
