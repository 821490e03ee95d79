"""Training by the evidence of the last layer: what each step moves, costs and follows."""

import copy

import pytest
import torch
from torch import nn

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import LastLayerConfig
from tuneparts.methods.baselines.last_layer import bound, last_linear

HYPERS = {"affine": {"rotation": 0.3}, "samples": 3}


def _learner(context, small, **fields):
    fields = {"hypers": HYPERS, "num_inducing": 12, **small, **fields}
    return parse(LastLayerConfig, fields).build(context)


def test_a_hyper_step_moves_hypers_alone_and_a_weight_step_weights_alone(context, small):
    learner = _learner(context, small)
    weights = copy.deepcopy(learner.net.state_dict())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    hooks = [dict(module._forward_pre_hooks) for module in learner.net.modules()]
    learner.hyper_step()
    assert all(torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())
    assert all(not torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert all(p.grad is None for p in learner.net.parameters())
    assert [dict(module._forward_pre_hooks) for module in learner.net.modules()] == hooks
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.weight_step()
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert any(not torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())


def test_the_gradient_is_that_of_the_bound(context, small):
    """At the best q of a batch the slope of the bound is the slope at fixed q."""
    learner = _learner(context, {**small, "batch_size": 80}, memory=0.0)
    batch = copy.deepcopy(learner._hyper_batches).next()
    x, y_B = learner.train_data.take(batch)
    psi = learner.hypers.learnable()
    learner.net.eval()
    found = learner._induced().averages(
        learner._features(x, learner.generator("augment hyper steps"))
    )
    value = -bound(found, learner._targets(y_B), learner.config.noise) / 80
    expected = torch.autograd.grad(value, psi)
    loss = learner.hyper_step()
    assert float(loss) == pytest.approx(float(value.detach()), rel=1e-5)
    for parameter, grad in zip(psi, expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-6)


def test_hyper_steps_wait_for_the_burn_in_and_keep_the_budget(context, small):
    learner = _learner(context, small, burn_in=0.5, hyper_every=3)
    kinds = []
    while not learner.finished:
        step = learner.step()
        learner._passes += step.passes
        kinds.append("hyper" if "train/hyper_loss" in step.losses else "weight")
    assert learner.passes == 40
    assert kinds[:20] == ["weight"] * 20
    assert kinds[20:25] == ["hyper", "weight", "weight", "weight", "hyper"]


@pytest.mark.parametrize(("num_inducing", "passes"), [(12, 1), (24, 1), (25, 2), (100, 3)])
def test_inducing_examples_count_as_passes(small, num_inducing, passes):
    config = parse(LastLayerConfig, {**small, "hypers": HYPERS, "num_inducing": num_inducing})
    assert config.batch_size * config.hypers.samples == 24
    assert config.hyper_passes == passes


def test_the_evidence_is_a_number_of_all_data(context, small):
    learner = _learner(context, small)
    row = {}
    while not learner.finished:
        row = learner.advance()
    assert row["lml/total"] == pytest.approx(learner.evidence())
    assert row["lml/per_example"] == pytest.approx(row["lml/total"] / 80)
    assert row["lml/total"] > -80 * 4 * 20


def test_what_cannot_be_is_refused_with_the_cure(context, small):
    with pytest.raises(ConfigError, match="the hyper `temperature` acts on outputs"):
        _learner(context, small, hypers={**HYPERS, "temperature": 2.0})
    with pytest.raises(ConfigError, match="the net has none"):
        last_linear(nn.Sequential(nn.Conv2d(1, 1, 1)))
