"""Curvature and evidence against whole Jacobians, loops and finite differences, in float64."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tuneparts import nets
from tuneparts.core import _torchvision, seeding
from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.hypers import Hypers
from tuneparts.methods.baselines._curvature import (
    averaged,
    check_factors,
    decomposed,
    diagonal_ggn,
    each,
    kronecker_ggn,
    log_evidence,
)

NETS = {
    "mlp": (nets.Mlp(widths=(5, 4)), (1, 4, 4)),
    "digits_cnn": (nets.DigitsCnn(channels=(2, 3), hidden=4), (1, 4, 4)),
    "fixup_resnet": (nets.FixupResNet(depth=8, planes=2), (3, 4, 4)),
    "group_norms": (nets.ResNet50Gn(num_per_stage=1), (3, 4, 4)),
}
GGN = {"diagonal": diagonal_ggn, "kronecker": kronecker_ggn}


def _case(name, *, num=4, learnable=False, **hypers):
    config, shape = NETS[name]
    with seeding.isolated(0, "init"):
        net = config.build(shape, 3).double()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        x = torch.randn(num, *shape, dtype=torch.float64)
    made = Hypers(**hypers).build(learnable=learnable, net=net, in_shape=shape).double()

    def predict(f):
        generator = torch.Generator().manual_seed(1)
        return made.predict(f, x, generator=generator, training=True)

    return net, made, predict


@pytest.mark.parametrize("name", ["mlp", "digits_cnn", "fixup_resnet"])
@pytest.mark.parametrize(
    "hypers",
    [{}, {"affine": {"rotation": 0.5}, "samples": 3}, {"temperature": 2.0, "noise": 0.1}],
    ids=["plain", "augmented", "noisy"],
)
@pytest.mark.parametrize("differentiable", [False, True])
def test_the_diagonal_is_that_of_whole_jacobians(name, hypers, differentiable):
    net, _, predict = _case(name, **hypers)
    logits_BK, found = diagonal_ggn(net, predict, 4, differentiable=differentiable)
    torch.testing.assert_close(logits_BK.detach(), predict(net).detach())
    for n, block in dense_blocks(net, predict).items():
        assert found[n].shape == net.get_parameter(n).shape
        torch.testing.assert_close(found[n].detach().reshape(-1), block.diagonal())


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


def dense_blocks(net, predict):
    """J^T (diag(p) - p p^T) J of every parameter alone, example by example."""
    logits_BK = predict(net)
    blocks = {}
    for name, parameter in net.named_parameters():
        total = torch.zeros(parameter.numel(), parameter.numel(), dtype=torch.float64)
        for logits_K in logits_BK:
            rows = [torch.autograd.grad(z, parameter, retain_graph=True)[0] for z in logits_K]
            J_KP = torch.stack([row.reshape(-1) for row in rows])
            p = logits_K.detach().softmax(0)
            total += J_KP.T @ (p.diag() - torch.outer(p, p)) @ J_KP
        blocks[name] = total
    return blocks


def as_matrix(h):
    """What the factors stand for, by the row-major order of the weights."""
    if not isinstance(h, tuple):
        return h.reshape(-1).diag()
    return torch.kron(h[1], h[0]) if len(h) == 2 else h[0]


@pytest.mark.parametrize("differentiable", [False, True])
def test_one_example_of_linear_layers_is_exact(differentiable):
    net, _, predict = _case("mlp", num=1, temperature=2.0)
    logits_BK, found = kronecker_ggn(net, predict, 1, differentiable=differentiable)
    torch.testing.assert_close(logits_BK.detach(), predict(net).detach())
    expected = dense_blocks(net, predict)
    assert list(found) == list(expected)
    for name, block in expected.items():
        torch.testing.assert_close(as_matrix(found[name]).detach(), block)


def test_a_linear_classifier_at_zero_is_exact_for_any_number_of_examples():
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()
    nn.init.zeros_(net[1].weight)
    nn.init.zeros_(net[1].bias)
    x = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, found = kronecker_ggn(net, lambda f: f(x), 7)
    for name, block in dense_blocks(net, lambda f: f(x)).items():
        torch.testing.assert_close(as_matrix(found[name]), block)
        dense = torch.logdet(block + 0.3 * torch.eye(len(block)).double())
        values = decomposed(found[name]).values
        torch.testing.assert_close((values + 0.3).log().sum(), dense)


@pytest.mark.parametrize("name", ["fixup_resnet", "group_norms"])
def test_scales_and_shifts_have_the_exact_diagonal(name):
    net, _, predict = _case(name, affine={"rotation": 0.5}, samples=2)
    _, exact = diagonal_ggn(net, predict, 4)
    _, found = kronecker_ggn(net, predict, 4)
    scalars = [n for n, h in found.items() if not isinstance(h, tuple)]
    assert len(scalars) > 5
    for n in scalars:
        torch.testing.assert_close(found[n], exact[n])


def test_a_convolution_is_that_of_loops_over_examples_samples_and_positions():
    net, _, predict = _case("digits_cnn", num=2, affine={"rotation": 0.5}, samples=3)
    _, found = kronecker_ggn(net, predict, 2)
    layers = [n for n, m in net.named_modules() if isinstance(m, nn.Conv2d)]
    for name in layers:
        layer, seen = net.get_submodule(name), {}
        handle = layer.register_forward_hook(lambda m, x, y, seen=seen: seen.update(x=x[0], y=y))
        logits_BK = predict(net)
        handle.remove()
        patches = F.unfold(seen["x"], layer.kernel_size, padding=layer.padding).detach()
        num_positions = patches.shape[-1]
        A = torch.zeros(patches.shape[1], patches.shape[1], dtype=torch.float64)
        B = torch.zeros(layer.out_channels, layer.out_channels, dtype=torch.float64)
        for b in range(2):
            p = logits_BK[b].detach().softmax(0)
            jacobians = [
                torch.autograd.grad(z, seen["y"], retain_graph=True)[0] for z in logits_BK[b]
            ]
            for t in range(num_positions):
                a = sum(patches[3 * b + s, :, t] for s in range(3)) / 3
                A += torch.outer(a, a) / (2 * num_positions)
                J_KO = torch.stack(
                    [sum(j.flatten(2)[3 * b + s, :, t] for s in range(3)) for j in jacobians]
                )
                B += J_KO.T @ (p.diag() - torch.outer(p, p)) @ J_KO
        torch.testing.assert_close(found[f"{name}.weight"][0], A)
        torch.testing.assert_close(found[f"{name}.weight"][1], B)
        torch.testing.assert_close(found[f"{name}.bias"][0], B)


@pytest.mark.parametrize(
    ("curvature", "name"),
    [("diagonal", "mlp"), ("diagonal", "digits_cnn"), *(("kronecker", name) for name in NETS)],
)
def test_its_gradient_by_the_hypers_is_the_slope_of_its_value(curvature, name):
    net, hypers, predict = _case(name, learnable=True, affine={"rotation": 0.5}, samples=2)
    (raw,) = hypers.learnable()

    def volume():
        _, found = GGN[curvature](net, predict, 4)
        return sum(float((decomposed(h).values + 0.1).log().sum()) for h in found.values())

    _, moving = GGN[curvature](net, predict, 4, differentiable=True)
    precision = torch.tensor(0.1, dtype=torch.float64)
    still = {n: decomposed(each(torch.Tensor.detach, h)) for n, h in moving.items()}
    slopes = sum(still[n].slope(h, precision) for n, h in moving.items())
    (grad,) = torch.autograd.grad(slopes, [raw])
    assert grad.all()
    for i in (0, 2, 5):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                raw[i] += sign * 1e-5
            values.append(volume())
            with torch.no_grad():
                raw[i] -= sign * 1e-5
        slope = (values[0] - values[1]) / 2e-5
        assert float(grad[i]) == pytest.approx(slope, rel=2e-3, abs=1e-3)


@pytest.mark.filterwarnings("ignore")  # the library scripts functions, which torch deprecates
@pytest.mark.parametrize("name", ["mlp", "digits_cnn"])
def test_the_evidence_is_that_of_laplace_torch(name):
    _torchvision.load()
    laplace = pytest.importorskip("laplace")
    config, shape = NETS[name]
    with seeding.isolated(0, "init"):
        net = config.build(shape, 3).double()
        x, y = torch.randn(11, *shape, dtype=torch.float64), torch.randint(3, (11,))
        batches = DataLoader(TensorDataset(x, y), batch_size=4)  # the last one is smaller
        theirs = laplace.Laplace(
            net, "classification", subset_of_weights="all", hessian_structure="kron"
        )
        theirs.fit(batches)
    likelihood, total = torch.zeros((), dtype=torch.float64), {}
    for inputs, labels in batches:
        logits, found = kronecker_ggn(net, lambda f, inputs=inputs: f(inputs), len(inputs))
        likelihood -= F.cross_entropy(logits, labels, reduction="sum")
        for n, h in found.items():
            part = averaged(h, len(inputs) / 11)
            total[n] = each(torch.add, total[n], part) if n in total else part
    weights = {n: p.detach() for n, p in net.named_parameters()}
    values = {n: decomposed(h).values for n, h in total.items()}
    for scale in (0.01, 1.0, 100.0):  # a precision of its own for each tensor
        precisions = scale * torch.linspace(1, 2, len(weights), dtype=torch.float64)
        precisions.requires_grad_()
        ours = log_evidence(
            likelihood, weights, values, dict(zip(weights, precisions.log(), strict=True))
        )
        other = theirs.log_marginal_likelihood(prior_precision=precisions)
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=0)
        slopes = [torch.autograd.grad(value, precisions)[0] for value in (ours, other)]
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("ggn", GGN.values())
def test_the_net_is_left_alone(ggn):
    net, _, predict = _case("mlp")
    net.get_parameter("linear1.bias").requires_grad_(False)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    _, found = ggn(net, predict, 4)
    assert "linear1.bias" not in found
    assert not any(module._forward_hooks for module in net.modules())
    for name, parameter in net.named_parameters():
        assert torch.equal(before[name], parameter)
        assert parameter.grad is None


def test_layers_without_factors_are_refused_by_name():
    with pytest.raises(ConfigError, match="`0` is a PReLU"):
        check_factors(nn.Sequential(nn.PReLU()), max_gb=2.0)
    with pytest.raises(ConfigError, match="`0` is a grouped Conv2d"):
        check_factors(nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)), max_gb=2.0)
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(ConfigError, match=r"`0\.weight` is shared"):
        check_factors(tied, max_gb=2.0)
    with pytest.raises(ConfigError, match="up to 300 inputs or outputs need about"):
        check_factors(nn.Linear(300, 2), max_gb=1e-3)
    twice = nn.Linear(2, 2)
    net = nn.Sequential(twice, twice)
    with pytest.raises(ConfigError, match="`0` is called again"):
        kronecker_ggn(net, lambda f: f(torch.ones(3, 2)), 3)


def test_eigenvalues_that_are_no_numbers_are_found_another_way(monkeypatch) -> None:
    """Some LAPACKs return NaN, without an error, for a factor of low rank."""
    torch.manual_seed(0)
    root = torch.randn(8, 3, dtype=torch.float64)
    factor = root @ root.T
    want = torch.linalg.eigvalsh(factor).flip(0)

    def broken(matrix):
        return torch.full(matrix.shape[:1], torch.nan), torch.full(matrix.shape, torch.nan)

    monkeypatch.setattr(torch.linalg, "eigh", broken)
    (found,) = decomposed((factor,)).factors
    torch.testing.assert_close(found, want.clamp_min(0), atol=1e-12, rtol=0)
    basis = decomposed((factor,)).bases[0]
    torch.testing.assert_close(basis @ torch.diag(found) @ basis.T, factor)


def test_a_curvature_that_is_not_finite_is_called_diverged() -> None:
    with pytest.raises(DivergedError, match="curvature is not finite"):
        decomposed((torch.full((3, 3), torch.nan),))
