import numpy as np
import pytest
import torch

from tuneparts import schema
from tuneparts.data.config import DataConfig
from tuneparts.data.task import Examples, Task
from tuneparts.ensembles.deep import DeepEnsembleConfig, DeepEnsembleLearner
from tuneparts.errors import ConfigError
from tuneparts.training.learner import Context

CPU = torch.device("cpu")
SIZES = {"passes": 4, "interval": 2, "batch_size": 16, "members": ("digits_cnn", "digits_cnn")}


@pytest.fixture(scope="module")
def toy() -> Task:
    return DataConfig(name="stripes", num_train=64, num_val=16, num_test=20).load()


def learner(task: Task, **changes: object) -> DeepEnsembleLearner:
    return DeepEnsembleLearner(
        DeepEnsembleConfig().replaced({**SIZES, **changes}), Context(task, 0, CPU)
    )


def test_scores_are_those_of_the_mean_prediction(toy: Task) -> None:
    run = learner(toy)
    run.advance()
    last = run.advance()
    x, y = next(run._test.iterate(20))
    run.model.eval()
    with torch.no_grad():
        expected = run.target.scores(run.target.combined(run.model(x)), y)
    for name, value in expected.items():
        assert last[f"test/{name}"] == pytest.approx(value)


def test_the_objective_is_the_sum_and_the_report_the_mean(toy: Task) -> None:
    run = learner(toy)
    loss_M = torch.tensor([1.0, 2.0])
    assert run.objective(loss_M) == 3
    x, y = run.next_batch()
    by_hand = [torch.nn.functional.cross_entropy(net(x), y) for net in run.model.nets]
    torch.testing.assert_close(run.losses(x, y), torch.stack(by_hand))


def test_everything_that_can_be_measured_at_the_end(toy: Task) -> None:
    run = learner(toy, corruptions=("contrast", "fog"), interpolation_points=3)
    rows = [run.advance(), run.advance()]
    assert not any(name.startswith(("corrupted/", "interpolation/")) for name in rows[0])
    for name in ("corrupted/accuracy", "corrupted/ece", "interpolation/accuracy.1"):
        assert name in rows[1]
        assert schema.lookup(name)
    assert rows[1]["interpolation/accuracy.0"] == rows[1]["anytime/accuracy.0"]


def test_members_of_two_kinds_have_no_line_between_them(toy: Task) -> None:
    run = learner(toy, members=("digits_cnn", "mlp"), interpolation_points=3)
    run.advance()
    assert not any(name.startswith("interpolation/") for name in run.advance())


def test_training_on_all_has_no_validation_scores(toy: Task) -> None:
    run = learner(toy, train_on="all")
    assert len(run.train_data) == 80
    assert not any(name.startswith("val/") for name in run.advance())


def test_augmentation_changes_what_is_seen(toy: Task) -> None:
    plain, flipped = (learner(toy, augmentation={"flip": flip}) for flip in (False, True))
    assert not torch.equal(plain.next_batch()[0], flipped.next_batch()[0])


def test_vectors_cannot_be_augmented_or_corrupted() -> None:
    part = Examples(np.zeros((20, 3), np.float32), np.arange(20) % 2)
    task = Task("vectors", part, part, part, 2, (0.0,), (1.0,))
    with pytest.raises(ConfigError, match="act on images"):
        learner(task, members=("mlp",), corruptions=("fog",))
    learner(task, members=("mlp",)).advance()


def test_a_line_has_two_ends() -> None:
    with pytest.raises(ConfigError, match="two ends"):
        DeepEnsembleConfig().replaced({"interpolation_points": 1})
