"""Validation-set optimisation: two streams, then fine-tuning."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tuneparts import nets
from tuneparts.core.config import parse
from tuneparts.data.task import Examples
from tuneparts.methods.baselines.config import ValidationSet
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

LEARNT = {"affine": {"rotation": 0.3}, "temperature": 1.5, "samples": 2}
FINETUNE = {"fraction": 0.25}


def _learner(context, small, **fields):
    fields = {"hypers": LEARNT, "hyper_lr": 0.02, **small, **fields}
    return parse(ValidationSet, fields).build(context)


def _finish(learner):
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
    return rows


@pytest.mark.parametrize("holdout", [0.2, 0.5])
@pytest.mark.parametrize(("kind", "every"), [("adam", 1), ("sgd", 1), ("adam", 4)])
def test_it_is_partitioned_training_with_all_weights_in_the_first_partition(
    context, small, holdout, kind, every
):
    optimiser = {"kind": kind, "lr": 0.01, "schedule": "cosine"}
    ours = _learner(context, small, holdout=holdout, optimiser=optimiser, hyper_every=every)
    fields = {
        **PUBLISHED,
        **small,
        "hypers": LEARNT,
        "hyper_lr": 0.02,
        "hyper_every": every,
        "optimiser": optimiser,
        "proportions": (1 - holdout, holdout),
        "parameter_proportions": (1.0, 0.0),
    }
    reference = parse(Partitioned, fields).build(context)
    for row, expected in zip(_finish(ours), _finish(reference), strict=True):
        for name, value in row.items():
            assert value == pytest.approx(expected[name], rel=1e-5), name
    for a, b in zip(ours.net.parameters(), reference.net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def _altered(task, indices):
    joined = task.train.joined(task.val)
    inputs, labels = joined.inputs.copy(), joined.labels.copy()
    inputs[indices] = 255 - inputs[indices]
    labels[indices] = (labels[indices] + 1) % task.num_classes
    return dataclasses.replace(
        task, train=Examples(inputs, labels), val=joined.subset(np.arange(0))
    )


@pytest.mark.parametrize("net", [None, nets.WideResNet(depth=10, width=1)])
def test_weights_never_see_the_held_out_part_before_fine_tuning(context, small, net):
    small = small if net is None else {**small, "net": net}
    fields = {"hypers": {**LEARNT, "frozen": ("affine",)}, "hyper_lr": 1e-9}
    first = _learner(context, small, finetune=FINETUNE, **fields)
    changed = _altered(context.task, first.chunks.chunk(2))
    other_context = Context(task=changed, seed=0, device=context.device)
    second = _learner(other_context, small, finetune=FINETUNE, **fields)
    for learner in (first, second):
        for _ in range(3):
            learner.advance()
    assert first.steps == first.searched_steps == 30
    # A rate of 1e-9 keeps the temperature in place, so nothing of the other part may arrive.
    same = [torch.allclose(a, b, atol=1e-6) for a, b in _pairs(first, second)]
    assert all(same)
    first.advance()
    second.advance()
    assert not all(torch.allclose(a, b, atol=1e-4) for a, b in _pairs(first, second))


def _pairs(first, second):
    pairs = zip(first.net.state_dict().values(), second.net.state_dict().values(), strict=True)
    return [(a.double(), b.double()) for a, b in pairs]


def test_hyper_steps_see_only_the_held_out_part_and_move_no_weight(context, small):
    learner = _learner(context, small)
    held_out = set(learner.chunks.chunk(2).tolist())
    seen = []
    take = learner.train_data.take
    learner.train_data.take = lambda indices: seen.append(indices) or take(indices)
    before = copy.deepcopy(learner.net.state_dict())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.hyper_step()
    assert set(seen[0].tolist()) <= held_out
    assert all(torch.equal(before[name], t) for name, t in learner.net.state_dict().items())
    assert any(not torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.weight_step()
    assert not set(seen[1].tolist()) & held_out
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())


def test_fine_tuning_is_standard_training_on_all_data_at_frozen_hypers(context, small):
    optimiser = {"kind": "sgd", "lr": 0.05, "momentum": 0.5, "schedule": "cosine"}
    learner = _learner(context, small, finetune={"fraction": 0.25, "optimiser": optimiser})
    for _ in range(3):
        learner.advance()
    hypers = copy.deepcopy(learner.hypers)
    net = copy.deepcopy(learner.net)
    learner.advance()
    assert learner.finished
    assert learner.hypers.values() == hypers.values()

    reference = learner._release()  # for its streams at their start
    batches, draws = reference.batches, reference.augmentation
    torch_sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
    seen = []
    for number in range(10):
        torch_sgd.param_groups[0]["lr"] = 0.025 * (1 + np.cos(np.pi * number / 10))
        indices = batches.next()
        seen += indices.tolist()
        x, y = learner.train_data.take(indices)
        loss = F.cross_entropy(hypers.predict(net, x, generator=draws, training=True), y)
        torch_sgd.zero_grad()
        loss.backward()
        torch_sgd.step()
    assert sorted(seen) == list(range(80))
    for a, b in zip(learner.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_schedule_runs_over_the_search_stage(context, small):
    optimiser = {"schedule": "cosine", "lr": 0.01}
    learner = _learner(context, small, finetune=FINETUNE, optimiser=optimiser)
    spent = []
    for steps in (0, 15, 30, 35):
        learner._steps = steps
        spent.append(learner.progress)
    assert spent == [0, 0.5, 0, 0.5]


@pytest.mark.parametrize("steps", [7, 30, 31])
@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
def test_both_stages_keep_the_budget(context, small, steps, fraction):
    small = {**small, "steps": steps, "interval": steps}
    learner = _learner(context, small, finetune={"fraction": fraction})
    (row,) = _finish(learner)
    assert row["cost/steps"] == learner.steps == steps
    assert learner._finetuning is not None


def test_resuming_inside_fine_tuning_is_the_uninterrupted_run(context, small):
    small = {**small, "interval": 7}
    whole = _learner(context, small, finetune={"fraction": 0.5})
    expected = _finish(whole)
    for stop in range(1, len(expected)):
        stopped = _learner(context, small, finetune={"fraction": 0.5})
        for _ in range(stop):
            stopped.advance()
        content = checkpoint.to_bytes(stopped.state_dict())
        resumed = _learner(context, small, finetune={"fraction": 0.5})
        resumed.load_state_dict(checkpoint.from_bytes(content))
        assert _finish(resumed) == expected[stop:]
