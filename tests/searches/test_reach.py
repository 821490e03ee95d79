"""The reach of a run is counted as its learner steps."""

import pytest
import torch

import tuneparts as tp
from studies import reach
from tuneparts import (
    Augerino,
    Laplace,
    LastLayer,
    Partitioned,
    Standard,
    ValidationSet,
)
from tuneparts.training.learner import Context

SHARED = {
    "steps": 61,
    "interval": 61,
    "net": tp.nets.Mlp(widths=(4,)),
    "batch_size": 8,
    "hypers": {"affine": {"rotation": 0.3}, "samples": 2},
}
SGD = {"kind": "sgd", "lr": 0.01}
FEW = {"evidence_batch": 4, "evidence_every": 3}


@pytest.fixture(scope="module")
def context() -> Context:
    task = tp.data.Data(name="stripes", num_train=40, num_test=10).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize(
    "config",
    [
        Augerino(**SHARED),
        Laplace(**SHARED, **FEW),
        Laplace(**SHARED, **FEW, curvature="kronecker", burn_in=0.3),
        LastLayer(**SHARED, num_inducing=5, hyper_every=2),
        ValidationSet(**SHARED),
        ValidationSet(**SHARED, hyper_every=4, finetune={"fraction": 0.25}),
        ValidationSet(**SHARED, optimiser=SGD, through_step=True),
        ValidationSet(**SHARED, optimiser=SGD, through_step=True, hyper_every=3),
        Partitioned(**{**SHARED, "net": tp.nets.Mlp(widths=(64,))}),
        Partitioned.published(**SHARED),
        Partitioned.published(**SHARED, hyper_every=4),
        Partitioned.published(**SHARED, finetune={"fraction": 0.25}),
    ],
    ids=lambda config: config.method,
)
def test_hyper_steps_are_those_of_a_run(config, context):
    learner = config.build(context)
    found = 0
    while not learner.finished:
        before = [p.detach().clone() for p in learner.hypers.parameters()]
        learner._steps += learner.step().cost
        after = list(learner.hypers.parameters())
        found += any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert reach.hyper_steps(config, num_classes=4) == found > 0


def test_the_rate_follows_from_the_reach():
    config = reach.with_reach(ValidationSet(**SHARED, hyper_every=2), 18.0)
    assert config.hyper_lr == pytest.approx(18 / 20)
    assert reach.reach(config) == pytest.approx(18)
    assert reach.reach(Standard(**SHARED)) == 0


def test_arms_are_listed_by_their_reach():
    far = reach.with_reach(Augerino(**SHARED), 120.0)
    near = reach.with_reach(ValidationSet(**SHARED), 18.0)
    arms = {"a": near, "b": tp.Arm(config=far), "c": near, "none": Standard(**SHARED)}
    words = "\nReach (hyper rate times hyper steps): a, c 18; b 120.\n"
    assert reach.listed(arms) == words
