"""Examples on the device, and images that are read ahead."""

import dataclasses
import gc
import importlib
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data.batches import Batches
from tuneparts.data.config import Data
from tuneparts.data.device_examples import SERVER, DeviceExamples, _ReadAhead, kept_on_device
from tuneparts.data.task import Examples, StoredImages, Task, digest
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned.config import Partitioned
from tuneparts.testing.learner import LearnerContract, history
from tuneparts.training.config import Method
from tuneparts.training.learner import Context

CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.25, 0.1), (0.2, 0.3, 0.4)


@pytest.fixture
def examples():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 3, 4, 5), dtype=np.uint8)
    return Examples(images, rng.integers(0, 7, 20))


def _reference(images, mean=MEAN, std=STD):
    channels = [
        (images[:, c] / 255 - m) / s for c, (m, s) in enumerate(zip(mean, std, strict=True))
    ]
    return np.stack(channels, axis=1)


def test_take_normalises_each_channel(examples):
    data = DeviceExamples(examples, mean=MEAN, std=STD, device=CPU)
    indices = torch.tensor([3, 3, 19, 0])
    x, y = data.take(indices)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    np.testing.assert_allclose(x, _reference(examples.inputs[indices]), atol=1e-5)
    np.testing.assert_array_equal(y, examples.labels[indices])


def test_strides_do_not_tell_where_an_array_came_from():
    """An axis that was added has another stride than one that a pickle brought back."""
    added = np.zeros((20, 4, 5), np.uint8)[:, None]
    sent = pickle.loads(pickle.dumps(added))
    assert added.strides != sent.strides
    for images in (added, sent):
        examples = Examples(images, np.zeros(20, np.int64))
        x, _ = DeviceExamples(examples, mean=(0.0,), std=(1.0,), device=CPU).take(torch.arange(3))
        assert x.stride() == (20, 20, 5, 1)


@pytest.mark.parametrize("batch_size", [1, 7, 20, 100])
def test_iterate_gives_everything_once_in_order(examples, batch_size):
    data = DeviceExamples(examples, mean=MEAN, std=STD, device=CPU)
    batches = list(data.iterate(batch_size))
    assert max(len(y) for _, y in batches) == min(batch_size, 20)
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    expected_x, expected_y = data.take(torch.arange(20))
    assert torch.equal(x, expected_x)
    assert torch.equal(y, expected_y)


def test_one_mean_serves_all_channels(examples):
    x, _ = DeviceExamples(examples, mean=(0.0,), std=(1.0,), device=CPU).take(torch.arange(20))
    assert torch.equal(x, torch.from_numpy(examples.inputs).float() / 255)


def test_vectors_are_not_divided_by_255():
    vectors = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    data = DeviceExamples(Examples(vectors, np.arange(6)), mean=(0.0,), std=(1.0,), device=CPU)
    x, _ = data.take(torch.tensor([5, 1]))
    np.testing.assert_array_equal(x, vectors[[5, 1]])
    x.zero_()
    for batch, _ in data.iterate(4):
        batch.zero_()
    np.testing.assert_array_equal(data.take(torch.arange(6))[0], vectors)


def test_read_only_arrays_are_shared_without_a_warning(examples):
    examples.inputs.flags.writeable = False
    examples.labels.flags.writeable = False
    data = DeviceExamples(examples, mean=MEAN, std=STD, device=CPU)
    x, _ = data.take(torch.arange(20))
    np.testing.assert_allclose(x, _reference(examples.inputs), atol=1e-5)
    assert data._inputs.data_ptr() == examples.inputs.__array_interface__["data"][0]


def test_read_only_memory_outlives_the_array_that_named_it():
    def make():
        inputs = np.full((1000, 1, 8, 8), 51, np.uint8)
        inputs.flags.writeable = False
        return DeviceExamples(
            Examples(inputs, np.zeros(1000, np.int64)), mean=(0.0,), std=(1.0,), device=CPU
        )

    data = make()
    noise = [np.zeros((1000, 1, 8, 8), np.uint8) for _ in range(50)]
    x, _ = data.take(torch.arange(1000))
    assert torch.allclose(x, torch.tensor(0.2)), len(noise)


def test_stored_images_are_read_batch_by_batch(examples, tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, examples.inputs)
    rows = np.array([4, 2, 9, 11, 0])
    stored = Examples(StoredImages(path, rows), examples.labels[rows])
    on_disk = DeviceExamples(stored, mean=MEAN, std=STD, device=CPU)
    in_memory = DeviceExamples(examples.subset(rows), mean=MEAN, std=STD, device=CPU)
    indices = torch.tensor([4, 0, 0])
    for got, expected in zip(on_disk.take(indices), in_memory.take(indices), strict=True):
        assert torch.equal(got, expected)
    for got, expected in zip(on_disk.iterate(2), in_memory.iterate(2), strict=True):
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
    assert len(on_disk) == 5


def test_an_empty_split_has_no_batches(examples):
    empty = examples.subset(np.array([], np.int64))
    assert list(DeviceExamples(empty, mean=MEAN, std=STD, device=CPU).iterate(8)) == []


@pytest.mark.parametrize(
    ("mean", "std"), [((0.1, 0.2), (1.0, 1.0)), (MEAN, (1.0,)), (MEAN, (1.0, 0.0, 1.0))]
)
def test_normalisation_that_does_not_fit_is_refused(examples, mean, std):
    with pytest.raises(ConfigError, match="1 or 3 entries"):
        DeviceExamples(examples, mean=mean, std=std, device=CPU)


def test_the_next_learner_finds_the_data_on_the_device(examples):
    options = {"mean": (0.5,), "std": (0.5,), "device": torch.device("cpu")}
    first = kept_on_device(examples, **options)
    assert kept_on_device(examples, **options) is first
    assert kept_on_device(examples, **options | {"mean": (0.4,)}) is not first
    twin = dataclasses.replace(examples)
    assert kept_on_device(twin, **options) is not first


def test_data_stays_on_the_device_no_longer_than_its_examples(examples):
    from tuneparts.data import device_examples

    twin = dataclasses.replace(examples)
    before = len(device_examples._KEPT)
    placed = weakref.ref(kept_on_device(twin, mean=(0.5,), std=(0.5,), device=torch.device("cpu")))
    assert len(device_examples._KEPT) == before + 1
    del twin
    gc.collect()
    assert placed() is None
    assert len(device_examples._KEPT) == before


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
    return Data(name=f"folder:{folder}", num_train=60, num_val=12, num_test=16, image_size=8).load()


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
    with pytest.raises(ConfigError, match=f"`TUNEPARTS_{name}` = '{value}'"):
        _task(folder)


def _learner(config: Method, task: Task):
    return config.build(Context(task, 0, CPU))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        Standard(**LearnerContract.short),
        Partitioned.published(
            **LearnerContract.short, hypers={"noise": {"std": 0.1}}, scheme="node", mixed=True
        ),
    ],
    ids=["standard", "mixed"],
)
def test_what_is_read_ahead_is_what_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: Method
) -> None:
    monkeypatch.setenv("TUNEPARTS_DECODE", "always")
    rows = history(_learner(config, _task(folder)))
    monkeypatch.setenv("TUNEPARTS_READERS", "2")
    taken = []
    take = _ReadAhead.take

    def watched(self, indices_B, stream, draw):
        following = self._loaders.get(id(stream))
        taken.append(following is not None and following.expects(indices_B))
        return take(self, indices_B, stream, draw)

    monkeypatch.setattr(_ReadAhead, "take", watched)
    before = torch.get_rng_state()
    assert history(_learner(config, _task(folder))) == rows
    assert torch.equal(torch.get_rng_state(), before)
    num_streams = 1 if isinstance(config, Standard) else 2
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
    reader = _ReadAhead(images, readers=1, is_pinned=False)
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
