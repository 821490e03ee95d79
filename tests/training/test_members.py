import numpy as np
import pytest
import torch

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.data.target import Values
from tuneparts.data.task import Examples, Task
from tuneparts.methods import catalog
from tuneparts.methods.ensembles._deep import DeepEnsembleLearner
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.training.config import EnsembleMethod
from tuneparts.training.learner import Context

CPU = torch.device("cpu")
SIZES = {"steps": 4, "interval": 2, "batch_size": 16, "members": ("digits_cnn", "digits_cnn")}


@pytest.fixture(scope="module")
def toy() -> Task:
    return Data(name="stripes", num_train=64, num_val=16, num_test=20).load()


def learner(task: Task, **changes: object) -> DeepEnsembleLearner:
    return DeepEnsembleLearner(DeepEnsemble().replaced({**SIZES, **changes}), Context(task, 0, CPU))


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
    run = learner(toy, interpolation_points=3)
    rows = [run.advance(), run.advance()]
    assert not any(name.startswith("interpolation/") for name in rows[0])
    assert "interpolation/accuracy.1" in rows[1]
    assert schema.lookup("interpolation/accuracy.1")
    assert rows[1]["interpolation/accuracy.0"] == rows[1]["anytime/accuracy.0"]


def test_members_of_two_kinds_have_no_line_between_them(toy: Task) -> None:
    run = learner(toy, members=("digits_cnn", "mlp"), interpolation_points=3)
    run.advance()
    assert not any(name.startswith("interpolation/") for name in run.advance())


def test_training_on_all_has_no_validation_scores(toy: Task) -> None:
    run = learner(toy, train_on="all")
    assert len(run.train_data) == 80
    assert not any(name.startswith("val/") for name in run.advance())


def test_vectors_cannot_be_augmented() -> None:
    part = Examples(np.zeros((20, 3), np.float32), np.arange(20) % 2)
    task = Task("vectors", part, part, part, 2, (0.0,), (1.0,))
    with pytest.raises(ConfigError, match="acts on images"):
        learner(task, members=("mlp",), augmentation={"flip": True})
    learner(task, members=("mlp",)).advance()


METHODS = [
    name for name in catalog.METHODS.known if issubclass(catalog.config_class(name), EnsembleMethod)
]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_members_smooths_labels(name: str, toy: Task) -> None:
    def first_loss(smoothing: float) -> float:
        config = method(name).replaced(
            {"steps": 8, "interval": 8, "batch_size": 16, "label_smoothing": smoothing}
        )
        run = config.build(Context(toy, 0, CPU))
        with run.forward.training():
            return float(run.step().losses["train/loss"])

    assert first_loss(0.5) != first_loss(0.0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_members_may_leave_norms_undecayed(name: str, toy: Task) -> None:
    net = {"name": "wide_resnet", "depth": 10, "width": 1.25}
    config = method(name)
    nets = {"members": (net,), "net": net}
    fields = {field: value for field, value in nets.items() if field in type(config).model_fields}
    config = config.replaced({**fields, "decays_norms": False, "optimiser.weight_decay": 0.1})
    run = config.build(Context(toy, 0, CPU))
    decay = {id(p): g["weight_decay"] for g in run.optimiser.param_groups for p in g["params"]}
    norms = [m for m in run.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    own = {id(p) for norm in norms for p in norm.parameters()} & decay.keys()
    assert own
    assert {decay[one] for one in own} == {0.0}
    assert 0.1 in decay.values()


def method(name: str) -> EnsembleMethod:
    found = catalog.config_class(name)()
    assert isinstance(found, EnsembleMethod)
    return found


def test_smoothed_labels_are_mixed_with_the_uniform_distribution(toy: Task) -> None:
    run = learner(toy, label_smoothing=0.2)
    outputs = torch.randn(6, 4, dtype=torch.float64)
    y = torch.arange(6) % 4
    probabilities = torch.nn.functional.one_hot(y, 4).double() * 0.8 + 0.2 / 4
    expected = -(probabilities * outputs.log_softmax(dim=1)).sum(dim=1)
    torch.testing.assert_close(run.training_loss(outputs, y, reduction="none"), expected)


def test_only_labels_of_classes_are_smoothed() -> None:
    part = Examples(np.zeros((20, 3), np.float32), np.zeros((20, 1), np.float32))
    task = Task("values", part, part, part, 0, (0.0,), (1.0,), target=Values())
    with pytest.raises(ConfigError, match="`label_smoothing` is over classes"):
        learner(task, members=("mlp",), label_smoothing=0.1)


def test_a_line_has_two_ends() -> None:
    with pytest.raises(ConfigError, match="two ends"):
        DeepEnsemble().replaced({"interpolation_points": 1})
