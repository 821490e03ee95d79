"""Training by Laplace's evidence: what each step moves, costs and remembers."""

import copy
import math

import pytest
import torch

from tuneparts import nets
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines._curvature import decomposed, diagonal_ggn, kronecker_ggn
from tuneparts.methods.baselines.config import Laplace, Standard
from tuneparts.training import checkpoint

GGN = {"diagonal": diagonal_ggn, "kronecker": kronecker_ggn}
both = pytest.mark.parametrize("curvature", list(GGN))
HYPERS = {"affine": {"rotation": 0.3}, "samples": 2}


def _learner(context, small, **fields):
    fields = {
        **small,
        "hypers": HYPERS,
        "evidence_batch": 6,
        "evidence_every": 5,
        "steps": 60,
        **fields,
    }
    return parse(Laplace, fields).build(context)


def _finish(learner):
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
    return rows


@pytest.mark.parametrize(("curvature", "cost"), [("diagonal", 12), ("kronecker", 3)])
def test_steps_come_in_turn_and_keep_the_budget(context, small, curvature, cost):
    learner = _learner(context, small, burn_in=0.2, curvature=curvature)
    assert context.task.num_classes == 4
    steps = []
    while not learner.finished:
        step = learner.step()
        learner._steps += step.cost
        steps.append(step.cost)
    assert sum(steps) == 60
    assert steps[:12] == [1] * 12  # burn-in
    assert steps[12] == cost
    assert steps[13:19] == [1] * 5 + [cost]


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


@both
def test_an_evidence_step_moves_hypers_and_prior_alone(context, small, curvature):
    learner = _learner(context, small, curvature=curvature)
    weights = copy.deepcopy(learner.net.state_dict())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.evidence_step()
    assert all(torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())
    assert all(not torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert all(float(t.detach()) != 0 for t in learner.log_precision.values())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.weight_step()
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())


@both
def test_the_gradient_is_that_of_the_evidence_of_the_batch(context, small, curvature):
    """Without memory the running mean is the batch's curvature, and the trace its log det's."""
    learner = _learner(context, small, memory=0.0, curvature=curvature)
    batch = copy.deepcopy(learner._evidence_batches).next()
    x, y = learner.train_data.take(batch)
    psi = learner.hypers.learnable()
    generator = learner.generator("augment evidence steps")
    logits, found = GGN[curvature](
        learner.net,
        lambda f: learner.hypers.predict(f, x, generator=generator, training=True),
        6,
        differentiable=True,
    )
    evidence = -torch.nn.functional.cross_entropy(logits, y, reduction="sum") * 80 / 6
    for name, parameter in learner.net.named_parameters():
        delta = learner.log_precision[name].exp()
        h = _matrix(found[name]) * 80 / 6 / delta
        evidence = evidence - 0.5 * torch.logdet(h + torch.eye(len(h)))
        evidence = evidence - 0.5 * delta * parameter.detach().square().sum()
    parameters = [*psi, *learner.log_precision.values()]
    expected = torch.autograd.grad(-evidence, parameters)
    loss = learner.evidence_step()
    torch.testing.assert_close(loss, -evidence.detach() / 80)
    for parameter, grad in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-3)


def _matrix(h):
    if not isinstance(h, tuple):
        return h.reshape(-1).diag()
    return torch.kron(h[1], h[0]) if len(h) == 2 else h[0]


def test_the_running_mean_remembers(context, small):
    learner = _learner(context, small, memory=0.75)
    learner._remember({"a": torch.tensor([8.0])})
    learner._remember({"a": torch.tensor([4.0])})
    assert learner._curvature["a"].tolist() == [7.0]
    learner._remember({"b": (torch.tensor([[8.0]]), torch.tensor([[0.0]]))})
    learner._remember({"b": (torch.tensor([[4.0]]), torch.tensor([[4.0]]))})
    assert [factor.tolist() for factor in learner._curvature["b"]] == [[[7.0]], [[1.0]]]


@both
def test_the_evidence_of_all_data_does_not_depend_on_batches(context, small, curvature):
    totals = []
    for evidence_batch in (6, 80):
        fields = {"hypers": {}, "evidence_batch": evidence_batch, "curvature": curvature}
        learner = _learner(context, small, **fields)
        totals.append(learner.evidence())
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)


def test_it_is_reported_at_the_end_and_when_asked(context, small):
    rows = _finish(_learner(context, small))
    assert ["lml/total" in row for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["lml/per_example"] == pytest.approx(rows[-1]["lml/total"] / 80)
    rows = _finish(_learner(context, small, evidence_every=1000, lml_every=2))
    assert ["lml/total" in row for row in rows] == [False, True] * 3


@both
def test_the_prior_finds_the_size_of_the_weights(context, small, curvature):
    """With no data to speak of, the best precision of a tensor is one over its mean square."""
    learner = _learner(context, small, hypers={}, hyper_lr=0.2, curvature=curvature)
    for parameter in learner.net.parameters():
        with torch.no_grad():
            parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    for _ in range(60):
        learner.evidence_step()
    name = "linear1.weight"
    weight = learner.net.get_parameter(name).detach()
    h = decomposed(learner._curvature[name]).values
    delta = math.exp(float(learner.log_precision[name].detach()))
    # Where the gradient vanishes (MacKay 1992): delta |w|^2 = sum h / (h + delta).
    effective = float((h / (h + delta)).sum())
    assert delta * float(weight.square().sum()) == pytest.approx(effective, rel=0.1)


def test_the_precisions_can_have_a_rate_of_their_own(context, small):
    moved = {}
    for rate in (None, 0.0, 0.02):
        learner = _learner(context, small, hyper_lr=0.1, precision_lr=rate)
        learner.evidence_step()
        (raw,) = learner.hypers.learnable()
        assert raw[0] != _learner(context, small).hypers.learnable()[0][0]
        moved[rate] = abs(float(learner.log_precision["conv1.weight"].detach()))
    assert moved[None] == pytest.approx(0.1, rel=1e-3)
    assert moved[0.0] == 0
    assert moved[0.02] == pytest.approx(0.02, rel=1e-3)


def test_a_net_that_follows_trains_under_the_prior(context, small):
    """Standard training at what was reported takes the very step that Laplace's net takes."""
    fields = {"optimiser": {"kind": "sgd", "lr": 0.1, "momentum": 0.0}, "train_on": "all"}
    learner = _learner(context, small, hypers={}, precision=30.0, **fields)
    learner.evidence_step()
    found = {name.removeprefix("hyper/"): one for name, one in learner.evaluate().items()}
    decays = {name: one for name, one in found.items() if name.startswith("weight_prior.")}
    assert len(decays) == len(list(learner.net.parameters()))
    assert min(decays.values()) > 0.3
    config = parse(Standard, {**small, **fields})
    follower = config.replaced({"hypers": config.hypers.at(decays).model_dump()}).build(context)
    assert follower.hypers.values() == {f"hyper/{name}": one for name, one in decays.items()}
    learner.weight_step()
    follower.step()
    for a, b in zip(learner.net.parameters(), follower.net.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_prior_of_another_net_is_refused(context, small):
    config = parse(
        Standard,
        {**small, "hypers": {"weight_prior": {"kind": "weight_prior", "decay": (1,)}}},
    )
    with pytest.raises(ConfigError, match="one number for each tensor, but got 1 for 8"):
        config.build(context)


@both
def test_resuming_between_evidence_steps_is_the_uninterrupted_run(context, small, curvature):
    small = {**small, "interval": 20, "curvature": curvature}
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
    with pytest.raises(ConfigError, match=r"`max_gb` = 1e-06: Kronecker factors"):
        _learner(context, small, curvature="kronecker", max_gb=1e-6)
    with pytest.raises(ConfigError, match="without batch norms"):
        _learner(context, {**small, "net": nets.WideResNet(depth=10, width=1)})
    with pytest.raises(ConfigError, match="dropout"):
        _learner(context, small, hypers={"dropout": {"rate": 0.1}})
    with pytest.raises(ConfigError, match="precision is the weight decay"):
        _learner(context, small, optimiser={"weight_decay": 1e-4})
