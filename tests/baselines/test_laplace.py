"""Training by Laplace's evidence: what each step moves, costs and remembers."""

import copy
import math

import pytest
import torch

from tuneparts import models
from tuneparts.baselines.curvature import diagonal_ggn
from tuneparts.baselines.laplace import LaplaceConfig
from tuneparts.config import parse
from tuneparts.errors import ConfigError
from tuneparts.training import checkpoint

HYPERS = {"affine": {"rotation": 0.3}, "samples": 2}


def _learner(context, small, **fields):
    fields = {
        **small,
        "hypers": HYPERS,
        "evidence_batch": 6,
        "evidence_every": 5,
        "passes": 60,
        **fields,
    }
    return parse(LaplaceConfig, fields).build(context)


def _finish(learner):
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
    return rows


def test_steps_come_in_turn_and_keep_the_budget(context, small):
    learner = _learner(context, small, burn_in=0.2)
    cost = 3 * context.task.num_classes
    passes = []
    while not learner.finished:
        step = learner.step()
        learner._passes += step.passes
        passes.append(step.passes)
    assert sum(passes) == 60
    assert passes[:12] == [1] * 12  # burn-in
    assert passes[12] == cost
    assert passes[13:19] == [1] * 5 + [cost]


def test_a_weight_step_is_towards_the_posterior_maximum(context, small):
    precision = 7.0
    fields = {"optimiser": {"kind": "sgd", "lr": 1.0, "momentum": 0.0}, "precision": precision}
    learner = _learner(context, small, **fields)
    flat = _learner(context, small, **{**fields, "precision": 1e-12})
    before = {name: p.detach().clone() for name, p in learner.net.named_parameters()}
    learner.weight_step()
    flat.weight_step()
    for name, parameter in learner.net.named_parameters():
        pull = flat.net.get_parameter(name).detach() - parameter.detach()
        torch.testing.assert_close(pull, precision * before[name] / 80, rtol=1e-3, atol=1e-6)


def test_an_evidence_step_moves_hypers_and_prior_alone(context, small):
    learner = _learner(context, small)
    weights = copy.deepcopy(learner.net.state_dict())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.evidence_step()
    assert all(torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())
    assert all(not torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert all(float(t.detach()) != 0 for t in learner.log_precision.values())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.weight_step()
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())


def test_the_gradient_is_that_of_the_evidence_of_the_batch(context, small):
    """Without memory the running mean is the batch's curvature, and the trace its log det's."""
    learner = _learner(context, small, memory=0.0)
    batch = copy.deepcopy(learner._evidence_batches).next()
    x, y = learner.train_data.take(batch)
    psi = learner.hypers.learnable()
    generator = learner.generator("augment evidence steps")
    logits, diagonal = diagonal_ggn(
        learner.net,
        lambda f: learner.hypers.predict(f, x, generator=generator, training=True),
        6,
        differentiable=True,
    )
    evidence = -torch.nn.functional.cross_entropy(logits, y, reduction="sum") * 80 / 6
    for name, parameter in learner.net.named_parameters():
        delta = learner.log_precision[name].exp()
        evidence = evidence - 0.5 * torch.log1p(diagonal[name] * 80 / 6 / delta).sum()
        evidence = evidence - 0.5 * delta * parameter.detach().square().sum()
    parameters = [*psi, *learner.log_precision.values()]
    expected = torch.autograd.grad(-evidence, parameters)
    loss = learner.evidence_step()
    torch.testing.assert_close(loss, -evidence.detach() / 80)
    for parameter, grad in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-3)


def test_the_running_mean_remembers(context, small):
    learner = _learner(context, small, memory=0.75)
    learner._remember({"a": torch.tensor([8.0])})
    learner._remember({"a": torch.tensor([4.0])})
    assert learner._curvature["a"].tolist() == [7.0]


def test_the_evidence_of_all_data_does_not_depend_on_batches(context, small):
    totals = []
    for evidence_batch in (6, 80):
        learner = _learner(context, small, hypers={}, evidence_batch=evidence_batch)
        totals.append(learner.evidence())
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)


def test_it_is_reported_at_the_end_and_when_asked(context, small):
    rows = _finish(_learner(context, small))
    assert ["lml/total" in row for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["lml/per_example"] == pytest.approx(rows[-1]["lml/total"] / 80)
    rows = _finish(_learner(context, small, evidence_every=1000, lml_every=2))
    assert ["lml/total" in row for row in rows] == [False, True] * 3


def test_the_prior_finds_the_size_of_the_weights(context, small):
    """With no data to speak of, the best precision of a tensor is one over its mean square."""
    learner = _learner(context, small, hypers={}, hyper_lr=0.2)
    for parameter in learner.net.parameters():
        with torch.no_grad():
            parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    for _ in range(60):
        learner.evidence_step()
    name = "linear1.weight"
    weight, h = learner.net.get_parameter(name).detach(), learner._curvature[name]
    delta = math.exp(float(learner.log_precision[name].detach()))
    # Where the gradient vanishes (MacKay 1992): delta |w|^2 = sum h / (h + delta).
    effective = float((h / (h + delta)).sum())
    assert delta * float(weight.square().sum()) == pytest.approx(effective, rel=0.1)


def test_resuming_between_evidence_steps_is_the_uninterrupted_run(context, small):
    small = {**small, "interval": 20}
    whole = _learner(context, small)
    expected = _finish(whole)
    stopped = _learner(context, small)
    stopped.advance()
    assert stopped._curvature
    content = checkpoint.to_bytes(stopped.state_dict())
    resumed = _learner(context, small)
    resumed.load_state_dict(checkpoint.from_bytes(content))
    assert _finish(resumed) == expected[1:]
    assert checkpoint.to_bytes(resumed.state_dict()) == checkpoint.to_bytes(whole.state_dict())


def test_what_cannot_be_is_refused_with_the_cure(context, small):
    with pytest.raises(ConfigError, match=r"need about .* GB\. Use a smaller net"):
        _learner(context, small, max_gb=1e-4)
    with pytest.raises(ConfigError, match="without batch norms"):
        _learner(context, {**small, "net": models.WideResNet(depth=10, width=1)})
    with pytest.raises(ConfigError, match="dropout"):
        _learner(context, small, hypers={"dropout": {"rate": 0.1}})
    with pytest.raises(ConfigError, match="prior's precision is the weight decay"):
        _learner(context, small, optimiser={"weight_decay": 1e-4})
