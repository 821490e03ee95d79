"""Augerino: the reward on widths, and one joint step."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import Augerino
from tuneparts.methods.baselines.standard import SAFE_WIDTH, _reward

WIDTHS = st.lists(st.floats(0.01, 30), min_size=6, max_size=6)


def _learner(context, small, **fields):
    fields = {"hypers": {"affine": {"rotation": 0.3}, "samples": 2}, **small, **fields}
    return parse(Augerino, fields).build(context)


@settings(max_examples=50, deadline=None)
@given(values=WIDTHS, reg=st.floats(0.001, 1), safe=st.booleans())
def test_the_reward_is_the_norm_or_exactly_nothing(values, reg, safe):
    widths = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    found = _reward(widths, reg=reg, safe=safe)
    (grad,) = torch.autograd.grad(found, widths)
    if safe and max(values) >= SAFE_WIDTH:
        assert found == 0
        assert not grad.any()
    else:
        norm = math.sqrt(sum(w * w for w in values))
        assert float(found.detach()) == pytest.approx(reg * norm)
        assert grad.tolist() == pytest.approx([reg * w / norm for w in values])


@pytest.mark.parametrize(("width", "is_on"), [(9.99, True), (10.0, False), (10.01, False)])
def test_one_wide_range_switches_the_whole_reward_off(width, is_on):
    raw = torch.full((6,), -3.0, dtype=torch.float64)
    raw[4] = width + math.log(-math.expm1(-width))  # softplus of it is `width`
    raw.requires_grad_()
    widths = F.softplus(raw)
    torch.testing.assert_close(float(widths[4].detach()), width)
    widths_at = widths + (width - widths[4]).detach() * F.one_hot(torch.tensor(4), 6)
    (grad,) = torch.autograd.grad(_reward(widths_at, reg=0.01, safe=True), raw)
    assert bool(grad.all()) is is_on
    assert bool(grad.any()) is is_on


@pytest.mark.parametrize("kind", ["lila", "benton"])
def test_a_step_is_one_joint_backward(context, small, kind):
    reg = 0.3
    affine = {"kind": kind, "rotation": 0.3}
    hypers = {"affine": affine, "temperature": 1.5, "samples": 2}
    learner = _learner(context, small, hypers=hypers, reg=reg)
    twin = _learner(context, small, hypers=hypers, reg=reg)
    weights, psi = list(twin.net.parameters()), twin.hypers.learnable()
    ours = torch.optim.Adam(weights, lr=1e-3), torch.optim.Adam(psi, lr=0.05)
    generator, batches = twin.generator("augment"), twin._batches
    for _ in range(5):
        loss = learner.step().losses["train/loss"]
        x, y = twin.train_data.take(batches.next())
        logits = twin.hypers.predict(twin.net, x, generator=generator, training=True)
        part = twin.hypers.affine.maxima if kind == "lila" else twin.hypers.affine.widths
        likelihood = F.cross_entropy(logits, y)
        total = likelihood - reg * F.softplus(part.raw).square().sum().sqrt()
        grads = torch.autograd.grad(total, [*weights, *psi])
        for parameter, grad in zip([*weights, *psi], grads, strict=True):
            parameter.grad = grad
        for optimiser in ours:
            optimiser.step()
        torch.testing.assert_close(loss, likelihood.detach())
    for a, b in zip(learner.net.parameters(), weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(learner.hypers.learnable(), psi, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "hypers",
    [
        {},
        {"affine": {"kind": "schwoebel"}},
        {"affine": {"rotation": 0.1}, "frozen": ("affine",)},
    ],
)
def test_a_config_without_widths_is_refused(hypers):
    with pytest.raises(ConfigError, match=r"Augerino learns affine widths.*lila"):
        parse(Augerino, {"hypers": hypers})
