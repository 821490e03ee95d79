"""Every method's final model predicts what the method was scored by."""

import io
from typing import Any

import pytest
import torch

from tuneparts import catalog
from tuneparts.data.config import DataConfig
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context
from tuneparts.training.members.learner import MembersLearner
from tuneparts.training.served import Served, served
from tuneparts.training.supervised import SupervisedLearner

AFFINE = {"hypers": {"affine": {"rotation": 0.4}, "samples": 2}}


@pytest.fixture(scope="module")
def toy() -> Task:
    return DataConfig(name="stripes", num_train=96, num_val=32, num_test=32).load()


def trained(method: str, task: Task, **changes: Any) -> tuple[Any, dict[str, float]]:
    fields = {"passes": 12, "interval": 4, "batch_size": 16, **changes}
    config = catalog.config_class(method)().replaced(fields)
    context = Context(task=task, seed=0, device=torch.device("cpu"))
    learner = config.build(context)
    row: dict[str, float] = {}
    while not learner.finished:
        row = dict(learner.advance())
    again = config.build(context)  # what a checkpoint gives back, and not the object that trained
    again.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(learner.state_dict())))
    return again, row


def accuracy(module: Served, task: Task) -> float:
    logits_NK = module(torch.from_numpy(task.test.inputs.copy()))
    return float((logits_NK.argmax(1) == torch.from_numpy(task.test.labels)).double().mean())


@pytest.mark.parametrize("method", list(catalog.METHODS))
def test_the_model_scores_what_the_learner_reported(method: str, toy: Task) -> None:
    learner, row = trained(method, toy)
    if not isinstance(learner, SupervisedLearner | MembersLearner):
        with pytest.raises(ConfigError, match="another arm"):
            served(learner)
        return
    assert accuracy(served(learner), toy) == pytest.approx(row["test/accuracy"], abs=1e-12)


@pytest.mark.parametrize("method", ["partitioned", "standard"])
def test_hypers_travel_with_the_net_and_equal_inputs_agree(method: str, toy: Task) -> None:
    learner, _ = trained(method, toy, **AFFINE)
    module = served(learner)
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
        plain = learner.final_net()(normalised)
    assert not torch.allclose(plain, first)  # averaged over draws, not the bare net


def test_pixels_are_normalised_as_in_training() -> None:
    module = Served(torch.nn.Flatten(), mean=(0.25,), std=(0.5,), is_image=True)
    x = torch.tensor([[[[0, 255], [51, 102]]]], dtype=torch.uint8)
    expected = (x.double() / 255 - 0.25) / 0.5
    torch.testing.assert_close(module(x).double(), expected.flatten(1), atol=1e-6, rtol=0)
