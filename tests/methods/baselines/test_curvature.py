"""The diagonal of the curvature and the evidence, against written-out float64 versions."""

import math

import pytest
import torch
from torch import nn

from tuneparts import models
from tuneparts.core import seeding
from tuneparts.hypers import HypersConfig
from tuneparts.methods.baselines.curvature import diagonal_ggn, log_evidence

NETS = {
    "mlp": (models.Mlp(widths=(5,)), (1, 4, 4)),
    "digits_cnn": (models.DigitsCnn(channels=(2, 3), hidden=4), (1, 4, 4)),
    "fixup_resnet": (models.FixupResNet(depth=8, planes=2), (3, 4, 4)),
}


def _case(name, *, learnable=False, **hypers):
    config, shape = NETS[name]
    with seeding.isolated(0, "init"):
        net = config.build(shape, 3).double()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        x = torch.randn(4, *shape, dtype=torch.float64)
    made = HypersConfig(**hypers).build(learnable=learnable, net=net, in_shape=shape).double()

    def predict(f):
        generator = torch.Generator().manual_seed(1)
        return made.predict(f, x, generator=generator, training=True)

    return net, made, predict


def _naive(net, predict):
    """J^T (diag(p) - p p^T) J example by example, from whole Jacobians."""
    logits_BK = predict(net)
    parameters = list(net.parameters())
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for logits_K in logits_BK:
        rows = [
            torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(z, parameters, retain_graph=True)]
            )
            for z in logits_K
        ]
        jacobian_KP = torch.stack(rows)
        p = logits_K.detach().softmax(0)
        total += (jacobian_KP.T @ (p.diag() - torch.outer(p, p)) @ jacobian_KP).diagonal()
    return logits_BK.detach(), total


def _flat(diagonal):
    return torch.cat([h.reshape(-1) for h in diagonal.values()])


@pytest.mark.parametrize("name", list(NETS))
@pytest.mark.parametrize(
    "hypers",
    [{}, {"affine": {"rotation": 0.5}, "samples": 3}, {"temperature": 2.0, "noise": 0.1}],
    ids=["plain", "augmented", "noisy"],
)
@pytest.mark.parametrize("differentiable", [False, True])
def test_the_diagonal_is_that_of_whole_jacobians(name, hypers, differentiable):
    net, _, predict = _case(name, **hypers)
    expected_logits, expected = _naive(net, predict)
    logits_BK, diagonal = diagonal_ggn(net, predict, 4, differentiable=differentiable)
    torch.testing.assert_close(logits_BK.detach(), expected_logits)
    torch.testing.assert_close(_flat(diagonal).detach(), expected)
    shapes = {n: p.shape for n, p in net.named_parameters()}
    assert {n: h.shape for n, h in diagonal.items()} == shapes


def test_it_moves_nothing_and_skips_what_is_frozen():
    net, _, predict = _case("mlp")
    net.get_parameter("linear1.bias").requires_grad_(False)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    _, diagonal = diagonal_ggn(net, predict, 4)
    assert "linear1.bias" not in diagonal
    for name, parameter in net.named_parameters():
        assert torch.equal(before[name], parameter)
        assert parameter.grad is None


@pytest.mark.parametrize("name", ["mlp", "digits_cnn"])
def test_its_gradient_by_the_hypers_is_the_slope_of_its_value(name):
    net, hypers, predict = _case(name, learnable=True, affine={"rotation": 0.5}, samples=2)
    (raw,) = hypers.learnable()

    def volume(differentiable=False):
        _, diagonal = diagonal_ggn(net, predict, 4, differentiable=differentiable)
        return (_flat(diagonal) + 0.1).log().sum()

    (grad,) = torch.autograd.grad(volume(differentiable=True), [raw])
    assert grad.all()
    step = 1e-5
    for i in range(len(raw)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                raw[i] += sign * step
            values.append(float(volume()))
            with torch.no_grad():
                raw[i] -= sign * step
        slope = (values[0] - values[1]) / (2 * step)
        assert float(grad[i]) == pytest.approx(slope, rel=2e-3, abs=1e-3)


def test_the_evidence_is_exact_where_the_posterior_is_gaussian():
    """A weight observed through unit Gaussian noise: y_n ~ N(w, 1), w ~ N(0, 1 / delta)."""
    y = torch.tensor([0.3, -1.2, 0.7, 2.0], dtype=torch.float64)
    n, delta = len(y), 0.5
    w = y.sum() / (n + delta)  # the posterior's maximum
    likelihood = -0.5 * (y - w).square().sum() - n / 2 * math.log(2 * math.pi)
    found = log_evidence(
        likelihood,
        {"w": w.view(1)},
        {"w": torch.full((1,), float(n), dtype=torch.float64)},
        {"w": torch.tensor(delta, dtype=torch.float64).log()},
    )
    covariance = torch.eye(n, dtype=torch.float64) + 1 / delta
    exact = torch.distributions.MultivariateNormal(torch.zeros(n).double(), covariance)
    torch.testing.assert_close(found, exact.log_prob(y))


def test_the_evidence_sums_over_parameters_with_their_own_priors():
    generator = torch.Generator().manual_seed(0)
    w = {name: torch.randn(3, generator=generator).double() for name in "ab"}
    h = {name: torch.rand(3, generator=generator).double() for name in "ab"}
    log_delta = {"a": torch.tensor(0.7).double(), "b": torch.tensor(-0.4).double()}
    expected = -5.0
    for name in "ab":
        delta = math.exp(float(log_delta[name]))
        for weight, curvature in zip(w[name].tolist(), h[name].tolist(), strict=True):
            expected -= 0.5 * (math.log(curvature + delta) - math.log(delta))
            expected -= 0.5 * delta * weight**2
    found = log_evidence(torch.tensor(-5.0).double(), w, h, log_delta)
    assert float(found) == pytest.approx(expected)


def test_a_linear_classifier_agrees_with_its_hessian():
    """For logits linear in the weights, Gauss-Newton curvature is the Hessian itself."""
    net = nn.Sequential(nn.Linear(3, 4)).double()
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 3, 0])
    _, diagonal = diagonal_ggn(net, lambda f: f(x), 5)

    def loss(weight, bias):
        return nn.functional.cross_entropy(x @ weight.T + bias, y, reduction="sum")

    weight, bias = (p.detach() for p in net.parameters())
    (hessian, _), (_, hessian_bias) = torch.autograd.functional.hessian(loss, (weight, bias))
    torch.testing.assert_close(diagonal["0.weight"].reshape(-1), hessian.reshape(12, 12).diagonal())
    torch.testing.assert_close(diagonal["0.bias"], hessian_bias.diagonal())
