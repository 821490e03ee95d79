"""Images that are decoded when they are read, and read ahead by other processes."""

import gc
import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data.batches import Batches
from tuneparts.data.config import DataConfig
from tuneparts.data.device_examples import SERVER, ReadAhead
from tuneparts.data.task import StoredImages, Task, digest
from tuneparts.methods.baselines.config import StandardConfig
from tuneparts.methods.partitioned.config import PartitionedConfig
from tuneparts.testing.learner import LearnerContract, history
from tuneparts.training.config import MethodConfig
from tuneparts.training.learner import Context

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs of noise in four classes, of many sizes."""
    draws = np.random.default_rng(0)
    for part, num in (("train", 18), ("test", 4)):
        for kind in "abcd":
            place = tmp_path / "photos" / part / kind
            place.mkdir(parents=True)
            for number in range(num):
                height, width = draws.integers(9, 20, 2)
                pixels = draws.integers(0, 256, (height, width, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{number:02}.jpg")
    monkeypatch.setenv("TUNEPARTS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "photos"


def _task(folder: Path) -> Task:
    return DataConfig(
        name=f"folder:{folder}", num_train=60, num_val=12, num_test=16, image_size=8
    ).load()


def test_pixels_are_those_of_images_that_were_decoded_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = _task(folder)
    monkeypatch.setenv("TUNEPARTS_DECODE", "always")
    always = _task(folder)
    stored = always.train.inputs
    assert isinstance(stored, StoredImages)
    np.testing.assert_array_equal(np.asarray(stored), once.train.inputs)
    np.testing.assert_array_equal(stored[3:5], once.train.inputs[3:5])
    again = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(again[np.array([7, 0])], once.train.inputs[[7, 0]])
    assert len(pickle.dumps(stored)) < 10_000
    assert digest(always) == digest(_task(folder))


def test_an_image_that_cannot_be_decoded_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_DECODE", "always")
    images = _task(folder).train.inputs
    for path in folder.glob("train/*/*.jpg"):
        path.write_bytes(b"GIF89a")
    with pytest.raises(DataError, match="cannot be decoded"):
        images[:1]


@pytest.mark.parametrize(("name", "value"), [("DECODE", "never"), ("READERS", "many")])
def test_unknown_words_are_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TUNEPARTS_{name}", value)
    with pytest.raises(ConfigError, match=f"TUNEPARTS_{name} is .*but got `{value}`"):
        _task(folder)


def _learner(config: MethodConfig, task: Task):
    return config.build(Context(task, 0, CPU))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        StandardConfig(**LearnerContract.short),
        PartitionedConfig(
            **LearnerContract.short, hypers={"noise": {"std": 0.1}}, scheme="node", mixed=True
        ),
    ],
    ids=["standard", "mixed"],
)
def test_what_is_read_ahead_is_what_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: MethodConfig
) -> None:
    monkeypatch.setenv("TUNEPARTS_DECODE", "always")
    rows = history(_learner(config, _task(folder)))
    monkeypatch.setenv("TUNEPARTS_READERS", "2")
    taken = []
    take = ReadAhead.take

    def watched(self, indices_B, stream, draw):
        following = self._loaders.get(id(stream))
        taken.append(following is not None and following.expects(indices_B))
        return take(self, indices_B, stream, draw)

    monkeypatch.setattr(ReadAhead, "take", watched)
    before = torch.get_rng_state()
    assert history(_learner(config, _task(folder))) == rows
    assert torch.equal(torch.get_rng_state(), before)
    num_streams = 1 if isinstance(config, StandardConfig) else 2
    assert taken.count(False) == num_streams  # the first batch of each
    stopped = _learner(config, _task(folder))
    stopped.advance()
    resumed = _learner(config, _task(folder))
    resumed.load_state_dict(stopped.state_dict())
    assert history(resumed) == rows[1:]


@pytest.mark.slow
def test_a_stream_that_jumps_is_followed_to_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_DECODE", "always")
    images = _task(folder).train.inputs
    reader = ReadAhead(images, readers=1, is_pinned=False)
    stream = Batches(len(images), 16, seed=0, replacement=False)
    state = stream.state_dict()
    for number in range(9):
        if number == 4:
            stream.load_state_dict(state)
        indices_B = stream.next()
        found = reader.take(indices_B, stream, Batches.next)
        np.testing.assert_array_equal(found.numpy(), images[indices_B.numpy()])
    del stream
    assert reader._loaders == {}


def test_the_server_of_readers_hides_what_they_share_from_the_collector() -> None:
    before = gc.get_freeze_count()
    try:
        importlib.reload(importlib.import_module(SERVER))
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
