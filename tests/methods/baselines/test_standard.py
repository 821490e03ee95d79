import pytest
import torch

from tuneparts.core.errors import CheckpointError, DivergedError
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.training.learner import Context

BASE = {"steps": 6, "interval": 3, "batch_size": 16, "net": "digits_cnn"}


@pytest.fixture(scope="module")
def context() -> Context:
    task = Data(name="stripes", num_train=64, num_val=32, num_test=32).load()
    return Context(task=task, seed=0, device=torch.device("cpu"))


def history(context: Context, **changes) -> list[dict[str, float]]:
    learner = Standard(**BASE).replaced(changes).build(context)
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
    return rows


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("net", "mlp"),
        ("batch_size", 8),
        ("train_on", "all"),
        ("optimiser.lr", 0.1),
        ("optimiser.schedule", "cosine"),
        ("hypers.affine.rotation", 1.0),
        ("hypers.noise", 0.5),
        ("hypers.dropout.rate", 0.5),
        ("augmentation.crop_padding", 2),
        ("augmentation.flip", True),
        ("augmentation.cutout", 4),
    ],
)
def test_every_field_matters(context: Context, field: str, value: object) -> None:
    changed, plain = (history(context, **c)[-1]["train/loss"] for c in ({field: value}, {}))
    assert changed != plain


def test_validation_scores_exist_only_where_data_is_held_out(context: Context) -> None:
    assert "val/accuracy" in history(context)[0]
    assert "val/accuracy" not in history(context, train_on="all")[0]


def test_a_diverging_run_names_the_step_and_the_config(context: Context) -> None:
    with pytest.raises(DivergedError, match=r"updates after step 0 .*\"lr\":1e\+20"):
        history(context, **{"optimiser.kind": "sgd", "optimiser.lr": 1e20})


def test_a_state_of_another_net_is_refused(context: Context) -> None:
    one = Standard(**BASE).build(context)
    other = Standard(**BASE).replaced({"net": "mlp"}).build(context)
    with pytest.raises(CheckpointError, match="same kind of learner"):
        other.load_state_dict(one.state_dict())


def test_scoring_test_data_always_changes_no_training(context: Context) -> None:
    always = Context(task=context.task, seed=0, device=context.device, score_test_always=True)
    rows, curves = history(context), history(always)
    assert all("test/accuracy" in row for row in curves)
    assert [r["train/loss"] for r in rows] == [r["train/loss"] for r in curves]
    assert rows[-1] == curves[-1]
