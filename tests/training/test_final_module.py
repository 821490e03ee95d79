"""Every method's final module predicts what the method is scored by, logit by logit."""

import io
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods import catalog
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context
from tuneparts.training.loop import FinalModule, LoopLearner, SupervisedLearner, outputs_of
from tuneparts.training.members import MembersLearner

BATCH_NORM = {"name": "wide_resnet", "depth": 10, "width": 0.25}
GROUP_NORM = {"name": "resnet9", "width": 4}
WITH_NORMS: dict[str, dict[str, Any]] = {
    # Federated clients share no running statistics, and curvature needs independent examples.
    "federated": {"net": GROUP_NORM},
    "fedavg": {"net": GROUP_NORM},
    "laplace": {},
    "deep_ensemble": {"members": [BATCH_NORM, BATCH_NORM]},
    "msdnet": {},
    # A mixed batch has no norms over examples.
    "partitioned": {**PUBLISHED, "net": BATCH_NORM},
    "ssn": {"members": [BATCH_NORM, BATCH_NORM]},
    "slimmable": {"members": [BATCH_NORM, {**BATCH_NORM, "width": 0.125}]},
    "superweights": {"members": [BATCH_NORM, BATCH_NORM]},
    "universally_slimmable": {"net": {**BATCH_NORM, "width": 2.0}},
}
AFFINE = {"hypers": {"affine": {"rotation": 0.4}, "samples": 2}}


@pytest.fixture(scope="module")
def toy() -> Task:
    return Data(name="stripes", num_train=96, num_val=32, num_test=32).load()


def trained(method: str, task: Task, **changes: Any) -> tuple[Any, Any, dict[str, float]]:
    """A learner that has finished, another that loaded its state, and the last report."""
    fields = {"steps": 12, "interval": 4, "batch_size": 16, **changes}
    config = catalog.config_class(method)().replaced(fields)
    context = Context(task=task, seed=0, device=torch.device("cpu"))
    learner = config.build(context)
    row: dict[str, float] = {}
    while not learner.finished:
        row = dict(learner.advance())
    loaded = config.build(context)
    loaded.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(learner.state_dict())))
    return learner, loaded, row


@torch.no_grad()
def scored_logits(learner: Any) -> Tensor:
    """Logits (N, K) of the test data by the path that scores take."""
    if isinstance(learner, MembersLearner):
        learner.model.eval()
        with learner.model.prepared():
            return learner.combined(outputs_of(learner.model, learner._test)[0])
    assert isinstance(learner, SupervisedLearner)
    learner.net.eval()
    generator = learner.generator("evaluate test")
    return outputs_of(lambda x: learner.predict(x, generator), learner._test)[0]


@pytest.mark.parametrize("method", list(catalog.METHODS.known))
def test_it_predicts_what_the_learner_is_scored_by(method: str, toy: Task) -> None:
    fields = WITH_NORMS.get(method, {"net": BATCH_NORM})
    learner, loaded, row = trained(method, toy, **fields)
    if method != "laplace":
        nets = [m for m in learner.predictor().modules() if type(m).__name__.endswith("Norm2d")]
        nets += [m for m in learner.predictor().modules() if isinstance(m, torch.nn.GroupNorm)]
        assert nets, "a net without norms would hide a final net with stale norms"
    pixels, labels_N = torch.from_numpy(toy.test.inputs.copy()), torch.from_numpy(toy.test.labels)
    for one in (learner, loaded):
        logits_NK = one.final_module()(pixels)
        torch.testing.assert_close(logits_NK, scored_logits(one), atol=1e-5, rtol=1e-5)
        found = learner.target.scores(logits_NK, labels_N)
        assert found["nll"] == pytest.approx(row["test/nll"], rel=1e-5)
        assert found["accuracy"] == row["test/accuracy"]


@pytest.mark.parametrize("method", ["partitioned", "federated", "slimmable"])
def test_further_training_does_not_reach_it(method: str, toy: Task) -> None:
    fields = WITH_NORMS.get(method, {"net": BATCH_NORM})
    config = catalog.config_class(method)().replaced(
        {"steps": 40, "interval": 8, "batch_size": 16, **fields}
    )
    learner: Any = config.build(Context(task=toy, seed=0, device=torch.device("cpu")))
    learner.advance()
    before = checkpoint.to_bytes(learner.state_dict())
    module = learner.final_module()
    assert checkpoint.to_bytes(learner.state_dict()) == before
    x = torch.from_numpy(toy.test.inputs[:5].copy())
    first = module(x)
    learner.advance()
    assert torch.equal(module(x), first)
    assert not torch.equal(learner.final_module()(x), first)


@pytest.mark.parametrize("method", ["partitioned", "standard"])
def test_hypers_travel_with_the_net_and_equal_inputs_agree(method: str, toy: Task) -> None:
    learner, _, _ = trained(method, toy, **AFFINE)
    module = learner.final_module()
    x = torch.from_numpy(toy.test.inputs[:5].copy())
    first = module(x)
    assert torch.equal(first, module(x))
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert torch.equal(loaded(x), first)
    with torch.no_grad():
        normalised = learner._on_device(toy.test.subset(torch.arange(5).numpy())).take(
            torch.arange(5)
        )[0]
        plain = learner.trained_net()(normalised)
    assert not torch.allclose(plain, first)  # averaged over draws, not the bare net


def test_a_learner_without_a_model_says_so() -> None:
    with pytest.raises(ConfigError, match="another arm"):
        LoopLearner.predictor(MagicMock())


def test_pixels_are_normalised_as_in_training() -> None:
    module = FinalModule(torch.nn.Flatten(), mean=(0.25,), std=(0.5,), is_image=True)
    x = torch.tensor([[[[0, 255], [51, 102]]]], dtype=torch.uint8)
    expected = (x.double() / 255 - 0.25) / 0.5
    torch.testing.assert_close(module(x).double(), expected.flatten(1), atol=1e-6, rtol=0)
