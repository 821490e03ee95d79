"""Ranking trained models by laplace-torch's marginal likelihood."""

import math

import pytest
import torch

from tuneparts import nets
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.methods.baselines._curvature import diagonal_ggn, log_evidence
from tuneparts.methods.baselines.config import PosthocLaplace, Standard
from tuneparts.training.learner import Context

DECAY = 3e-3


@pytest.fixture(scope="module")
def selection():
    task = Data(name="input_selection", num_train=100, num_test=50).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


def _learner(selection, **fields):
    fields = {
        "net": nets.Mlp(widths=(6,)),
        "batch_size": 20,
        "steps": 40,
        "interval": 20,
        "optimiser": {"weight_decay": DECAY},
        **fields,
    }
    return parse(PosthocLaplace, fields).build(selection)


def test_it_agrees_with_our_own_diagonal(selection):
    keep = tuple(float(i < 12) for i in range(30))
    learner = _learner(selection, prior="decay", hypers={"mask": {"keep": keep}})
    learner.advance()
    x, y = learner.train_data.take(torch.arange(100))
    generator = torch.Generator()
    logits, diagonal = diagonal_ggn(
        learner.net,
        lambda f: learner.hypers.predict(f, x, generator=generator, training=False),
        100,
    )
    likelihood = -torch.nn.functional.cross_entropy(logits, y, reduction="sum")
    weights = {name: p.detach() for name, p in learner.net.named_parameters()}
    log_delta = torch.tensor(math.log(DECAY * 100))
    expected = log_evidence(likelihood, weights, diagonal, dict.fromkeys(weights, log_delta))
    assert learner.evidence() == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("hessian", ["diag", "kron", "full"])
def test_optimised_priors_are_at_least_as_good(selection, hessian):
    values = {}
    for prior in ("decay", "optimised"):
        learner = _learner(selection, prior=prior, hessian=hessian)
        learner.advance()
        values[prior] = learner.evidence()
    assert values["optimised"] > values["decay"]


def test_training_is_standard_training(selection):
    learner = _learner(selection, lml_every=1)
    ours = {"method", "hessian", "prior", "lml_every", "select_by_lml", "max_gb"}
    fields = learner.config.model_dump(exclude=ours)
    standard = parse(Standard, fields).build(selection)
    while not learner.finished:
        row, expected = learner.advance(), standard.advance()
        assert {k: v for k, v in row.items() if not k.startswith("lml/")} == expected
        assert row["lml/per_example"] == pytest.approx(row["lml/total"] / 100)


def test_it_can_end_with_the_weights_of_the_largest_evidence(selection):
    fields = {"optimiser": {"lr": 0.3, "weight_decay": DECAY}, "lml_every": 1, "interval": 8}
    plain, chosen = (_learner(selection, **fields, select_by_lml=by) for by in (False, True))
    found = []
    while not plain.finished:
        row, last = plain.advance(), chosen.advance()
        found.append(row["lml/total"])
        if not plain.finished:
            assert row == last
    assert found.index(max(found)) < len(found) - 1, "a rate of 0.3 overshoots"
    assert last["lml/total"] == max(found) > row["lml/total"]
    assert chosen.evidence() == pytest.approx(max(found), rel=1e-5)
    assert last["test/nll"] != row["test/nll"]


def test_what_cannot_be_is_refused_with_the_cure(selection):
    with pytest.raises(ConfigError, match=r"noise: .*draw nothing"):
        _learner(selection, hypers={"noise": 0.1})
    with pytest.raises(ConfigError, match=r"need about .* GB\. Use a smaller net"):
        _learner(selection, max_gb=1e-6)
    with pytest.raises(ConfigError, match=r"weight_decay.*is 0"):
        _learner(selection, optimiser={}, prior="decay")
