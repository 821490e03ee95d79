"""The reach of a run is counted as its learner steps."""

import pytest
import torch

from studies import reach
from tuneparts.data.config import DataConfig
from tuneparts.methods.baselines.config import (
    AugerinoConfig,
    LaplaceConfig,
    LastLayerConfig,
    StandardConfig,
    ValidationConfig,
)
from tuneparts.methods.partitioned import PartitionedConfig
from tuneparts.methods.partitioned.config import ReleasedConfig
from tuneparts.models import Mlp
from tuneparts.search.arm import Arm
from tuneparts.training.learner import Context

SHARED = {
    "passes": 61,
    "interval": 61,
    "net": Mlp(widths=(4,)),
    "batch_size": 8,
    "hypers": {"affine": {"rotation": 0.3}, "samples": 2},
}
SGD = {"kind": "sgd", "lr": 0.01}
FEW = {"evidence_batch": 4, "evidence_every": 3}


@pytest.fixture(scope="module")
def context() -> Context:
    task = DataConfig(name="stripes", num_train=40, num_test=10).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize(
    "config",
    [
        AugerinoConfig(**SHARED),
        LaplaceConfig(**SHARED, **FEW),
        LaplaceConfig(**SHARED, **FEW, curvature="kronecker", burn_in=0.3),
        LastLayerConfig(**SHARED, num_inducing=5, hyper_every=2),
        ValidationConfig(**SHARED),
        ValidationConfig(**SHARED, hyper_every=4, finetune={"fraction": 0.25}),
        ValidationConfig(**SHARED, optimiser=SGD, through_step=True),
        ValidationConfig(**SHARED, optimiser=SGD, through_step=True, hyper_every=3),
        PartitionedConfig(**SHARED),
        PartitionedConfig(**SHARED, hyper_every=4),
        ReleasedConfig(**SHARED, release={"fraction": 0.25}),
    ],
    ids=lambda config: config.method,
)
def test_hyper_steps_are_those_of_a_run(config, context):
    learner = config.build(context)
    found = 0
    while not learner.finished:
        before = [p.detach().clone() for p in learner.hypers.parameters()]
        learner._passes += learner.step().passes
        after = list(learner.hypers.parameters())
        found += any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert reach.hyper_steps(config, num_classes=4) == found > 0


def test_the_rate_follows_from_the_reach():
    config = reach.with_reach(ValidationConfig(**SHARED, hyper_every=2), 18.0)
    assert config.hyper_lr == pytest.approx(18 / 20)
    assert reach.reach(config) == pytest.approx(18)
    assert reach.reach(StandardConfig(**SHARED)) == 0


def test_arms_are_listed_by_their_reach():
    far = reach.with_reach(AugerinoConfig(**SHARED), 120.0)
    near = reach.with_reach(ValidationConfig(**SHARED), 18.0)
    arms = [Arm(name=name, config=c) for name, c in (("a", near), ("b", far), ("c", near))]
    arms.append(Arm(name="none", config=StandardConfig(**SHARED)))
    assert reach.listed(arms) == "Reach (hyper rate times hyper steps): a, c 18; b 120."
