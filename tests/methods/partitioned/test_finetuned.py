"""Partitioned training whose last stage is ordinary training."""

import copy

import pytest
import torch

from tuneparts import nets
from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.training import checkpoint
from tuneparts.training.config import Adam, Sgd
from tuneparts.training.learner import Context
from tuneparts.training.loop import SupervisedLearner

NETS = {
    "digits_cnn": nets.DigitsCnn(channels=(4, 6), hidden=10),
    "wide_resnet": nets.WideResNet(depth=10, width=1),
    "fixup_resnet": nets.FixupResNet(depth=8, planes=4),
    "resnet50_gn": nets.ResNet50Gn(num_per_stage=1),
}
FIELDS = {
    "batch_size": 8,
    "interval": 10,
    "steps": 40,
    "proportions": (0.5, 0.3, 0.2),
    "hypers": {"affine": {"rotation": 0.3}, "temperature": 1.5, "samples": 2},
    "hyper_lr": 0.02,
}
FINETUNE = {"fraction": 0.5, "optimiser": {}}


@pytest.fixture(scope="module")
def context():
    task = Data(name="stripes", num_train=60, num_val=20, num_test=20).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


def _finetuned(context, net="digits_cnn", **fields):
    fields = {**PUBLISHED, **FIELDS, "net": NETS[net], "finetune": FINETUNE, **fields}
    return parse(Partitioned, fields).build(context)


def _until_finetuning(learner):
    while learner.steps < learner.config.finetune.start(learner.config.steps):
        learner.advance()
    return learner


def test_before_fine_tuning_it_is_partitioned_training(context):
    finetuned = _until_finetuning(_finetuned(context))
    fields = {**PUBLISHED, **FIELDS, "net": NETS["digits_cnn"]}
    partitioned = parse(Partitioned, fields).build(context)
    partitioned.advance()
    partitioned.advance()
    state = finetuned.parts.state_dict()
    for name, tensor in partitioned.parts.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert finetuned.hypers.values() == partitioned.hypers.values()


@pytest.mark.parametrize("net", list(NETS))
def test_the_merged_net_predicts_what_all_partitions_predicted(context, net):
    learner = _until_finetuning(_finetuned(context, net))
    learner.net.eval()
    x = learner.train_data.take(torch.arange(20))[0]
    before = learner.predict(x, learner.generator("test"))
    learner.merged()
    after = SupervisedLearner.predict(learner, x, learner.generator("test"))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("net", list(NETS))
def test_fine_tuning_moves_every_weight_and_no_hyper(context, net):
    learner = _until_finetuning(_finetuned(context, net))
    learner.merged()
    weights = {name: p.detach().clone() for name, p in learner.net.named_parameters()}
    hypers = copy.deepcopy(learner.hypers.state_dict())
    rows = [learner.advance(), learner.advance()]
    assert learner.finished
    for name, parameter in learner.net.named_parameters():
        assert not torch.equal(weights[name], parameter), name
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert not any(name.startswith("lml/") for row in rows for name in row)
    assert "test/accuracy" in rows[-1]


def test_fine_tuning_trains_on_all_chunks(context):
    learner = _until_finetuning(_finetuned(context))
    seen = []
    take = learner.train_data.take
    learner.train_data.take = lambda indices, **ahead: (
        seen.append(indices) or take(indices, **ahead)
    )
    learner.advance()
    assert sorted(torch.cat(seen).tolist()) == list(range(80))


def test_extractor_layers_stay_with_the_hypers(context):
    learner = _until_finetuning(_finetuned(context, num_extractor_layers=1))
    held = {name: learner.net.get_parameter(name).detach().clone() for name in _names(learner)}
    assert set(held) == {"conv1.weight", "conv1.bias"}
    learner.advance()
    assert all(torch.equal(held[name], learner.net.get_parameter(name)) for name in held)


def _names(learner):
    held = {id(p) for p in learner.parts.held()}
    return [name for name, p in learner.net.named_parameters() if id(p) in held]


def test_fine_tuning_starts_from_the_state_with_the_largest_lml(context):
    learner = _finetuned(context, select_by_lml=True, finetune={**FINETUNE, "fraction": 0.25})
    states, totals = [], []
    while learner.steps < learner.config.finetune.start(learner.config.steps):
        totals.append(learner.advance()["lml/total"])
        states.append(copy.deepcopy(learner.parts.state_dict()))
    best = states[totals.index(max(totals))]
    assert best is not states[0]
    learner._load_model_state({"parts": states[0], "hypers": learner.hypers.state_dict()})
    learner._stage = learner._stage.replaced({"optimiser.lr": 1e-12})
    learner.step()
    weight = learner.net.get_parameter("classifier.weight")
    torch.testing.assert_close(weight.detach(), best["net.classifier.weight"])


def test_its_optimiser_is_that_of_the_run_at_half_its_rate_along_a_cosine(context):
    run = {"kind": "sgd", "lr": 0.02, "momentum": 0.5, "schedule": "steps"}
    learner = _finetuned(context, finetune={"fraction": 0.5}, optimiser=run)
    _until_finetuning(learner).step()
    assert learner._finetuning.config == Sgd(lr=0.01, momentum=0.5, schedule="cosine")
    given = _finetuned(context, finetune={"fraction": 0.5, "optimiser": {"lr": 0.3}}, optimiser=run)
    _until_finetuning(given).step()
    assert given._finetuning.config == Adam(lr=0.3)


@pytest.mark.parametrize("steps", [9, 20, 21])
@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.99])
def test_the_total_budget_is_kept(context, steps, fraction):
    fields = {"steps": steps, "interval": steps, "finetune": {"fraction": fraction}}
    learner = _finetuned(context, **fields)
    assert learner.advance()["cost/steps"] == steps
    assert learner.finished


@pytest.mark.parametrize("net", ["digits_cnn", "wide_resnet"])
def test_resuming_before_and_during_fine_tuning(context, net):
    fields = {"steps": 24, "interval": 8, "num_extractor_layers": 1}
    whole = _finetuned(context, net, **fields)
    expected, states = [], []
    while not whole.finished:
        expected.append(dict(whole.advance()))
        states.append(checkpoint.to_bytes(whole.state_dict()))
    # A learner that has finished takes any earlier state, as population-based training asks.
    for stop, content in enumerate(states[:-1], start=1):
        whole.load_state_dict(checkpoint.from_bytes(content))
        rows = []
        while not whole.finished:
            rows.append(dict(whole.advance()))
        assert rows == expected[stop:]
