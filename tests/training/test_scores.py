"""Scores on published corruptions, of any method, alone and in a pack."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.data._variants import SEVERITIES, CorruptedTest
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.search import data_record
from tuneparts.training.config import Method
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import LoopLearner
from tuneparts.training.pack import Pack

KINDS = ("fog", "snow")
SIZES = {"steps": 4, "interval": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """Stripes with corrupted test images of the same shape, in the published layout."""
    plain = Data(name="stripes", num_train=64, num_val=16, num_test=20).load()
    folder: Path = tmp_path_factory.mktemp("stripes-c")
    rng = np.random.default_rng(0)
    for kind in KINDS:
        images = rng.integers(0, 256, (5 * 20, 8, 8, 1), np.uint8)
        np.save(folder / f"{kind}.npy", images)
    labels = plain.test.labels
    found = CorruptedTest(folder, KINDS, labels, np.arange(len(labels)), len(labels))
    return replace(plain, corrupted=found)


def rows(config: Method, task: Task) -> tuple[Learner, list[dict[str, float]]]:
    run = config.build(Context(task, 0, torch.device("cpu")))
    found = []
    while not run.finished:
        found.append(dict(run.advance()))
    return run, found


CONFIGS = {
    "net": Standard(**SIZES, net="mlp"),
    "ensemble": DeepEnsemble(**SIZES, members=("mlp", "digits_cnn")),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_are_means_over_kinds_and_severities(name: str, task: Task) -> None:
    run, found = rows(CONFIGS[name], task)
    assert not any(key.startswith("corrupted/") for key in found[0])
    module = run.final_module()
    labels = torch.from_numpy(task.corrupted.labels)
    by_hand = []
    for kind in KINDS:
        stored = np.load(task.corrupted.folder / f"{kind}.npy")
        for severity in SEVERITIES:
            block = stored[20 * (severity - 1) : 20 * severity].transpose(0, 3, 1, 2)
            by_hand.append(run.target.scores(module(torch.from_numpy(block.copy())), labels))
    for score in ("accuracy", "nll", "ece"):
        expected = np.mean([one[score] for one in by_hand])
        assert found[-1][f"corrupted/{score}"] == pytest.approx(expected)
        assert schema.lookup(f"corrupted/{score}")


def test_without_such_images_there_are_no_such_scores(task: Task) -> None:
    _, found = rows(CONFIGS["net"], replace(task, corrupted=None))
    assert not any(key.startswith("corrupted/") for key in found[-1])


def test_trials_of_a_pack_have_the_scores_that_they_have_alone(task: Task) -> None:
    configs = [CONFIGS["net"].replaced({"optimiser.lr": lr}) for lr in (0.001, 0.01)]
    alone = [rows(config, task)[1][-1] for config in configs]
    context = Context(task, 0, torch.device("cpu"))
    pack = Pack({slot: config.build(context) for slot, config in enumerate(configs)}, 2)
    pack.advance()
    last = pack.advance()
    for slot, expected in enumerate(alone):
        assert last[slot]["corrupted/nll"] == pytest.approx(expected["corrupted/nll"], rel=1e-4)


def test_a_method_that_keeps_no_net_is_refused_before_it_trains(task: Task) -> None:
    class Nothing(LoopLearner):
        step = evaluate = None  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="Leave the data's `corrupted` out"):
        Nothing(Method(), Context(task, 0, torch.device("cpu")))


def test_the_record_of_a_run_has_the_images_where_there_are_some(
    task: Task, tmp_path: Path
) -> None:
    data_record.keep(task, tmp_path)
    assert data_record.read(tmp_path)["corrupted"]["kinds"] == list(KINDS)
    data_record.keep(task, tmp_path)
    (tmp_path / data_record.FILE).unlink()
    data_record.keep(replace(task, corrupted=None), tmp_path)
    assert "corrupted" not in data_record.read(tmp_path)
