"""Reading photographs from disk, compared with torchvision's `ImageFolder` in a `DataLoader`.

All sides make the same batches of scaled and normalised images from the same JPEG files, in as many
processes. They take turns, an epoch each, with nothing of it read before the clock starts. The
clock is that of the wall, since most work is in other processes.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

import tuneparts as tp
from benchmarks.measure import interleave, ratios, spread
from benchmarks.results import Result, Row, result, tell
from tuneparts.core import _torchvision, seeding
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.task import Examples, StoredImages

_READERS = 2
_BATCH = 50
_AHEAD = 2 * _READERS
"""Batches that may have been read before their epoch begins."""
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_Epochs = Iterator[Iterator[Tensor]]


def run(*, quick: bool) -> Result:
    """Time of an epoch by torchvision over ours, and memory of the readers."""
    num, size, rounds = (100, 32, 1) if quick else (1200, 128, 5)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"TUNEPARTS_READERS": str(_READERS), "TUNEPARTS_CACHE": f"{folder}/cache"}
        _write_photographs(folder, num, size)
        ways: dict[str, Callable[[], _Epochs]] = {
            "torchvision": lambda: _theirs(folder, size),
            "ours, decoded always": lambda: _ours(folder, num, size, "always"),
            "ours, decoded once": lambda: _ours(folder, num, size, "once"),
        }
        with patch.dict(os.environ, settings):  # also puts back what the ways set
            epochs = {}
            for way, start in ways.items():
                before, begin = _processes(os.getpid()), time.perf_counter()
                epochs[way] = start()
                _seconds(epochs[way])
                first = time.perf_counter() - begin
                memory = _megabytes(_processes(os.getpid()) - before)
                rows.append({"way": way, "first epoch s": first, "readers MB": memory})
            calls = {way: lambda one=one: _seconds(one) for way, one in epochs.items()}
            seconds = interleave(calls, rounds=rounds)
    for row in rows:
        found = spread(seconds[row["way"]])
        row |= {"images/s": num / found["median"], "epoch s": found["median"]}
        row |= {"fastest": found["fastest"], "slowest": found["slowest"]}
        tell(row)
    found_ratios = {}
    for how in ("always", "once"):
        found = ratios(seconds["torchvision"], seconds[f"ours, decoded {how}"])
        found_ratios[f"folder_over_ours.{how}"] = found["median"]
    return result("data", found_ratios, rows)


def _seconds(epochs: _Epochs) -> float:
    batches, start = next(epochs), time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def _theirs(folder: Path, size: int) -> _Epochs:
    """As in torchvision's own recipes, without augmentation."""
    vision = _torchvision.load()
    make = vision.transforms
    scaled = [make.Resize(size), make.CenterCrop(size)]
    steps = make.Compose([*scaled, make.ToTensor(), make.Normalize(_MEAN, _STD)])
    loader = DataLoader(
        vision.datasets.ImageFolder(f"{folder}/photos/train", steps),
        batch_size=_BATCH,
        shuffle=True,
        num_workers=_READERS,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (x for x, _ in loader)


def _ours(folder: Path, num: int, size: int, decode: str) -> _Epochs:
    """What a learner does; small sets are kept on disk here as large ones are."""
    os.environ["TUNEPARTS_DECODE"] = decode
    task = tp.data.Data(
        name=f"folder:{folder / 'photos'}", num_train=num, num_val=0, num_test=4, image_size=size
    ).load()
    images = task.train.inputs
    if not isinstance(images, StoredImages):
        images = StoredImages(next((folder / "cache" / "decoded").glob("*train*.npy")))
    examples = DeviceExamples(
        Examples(images, task.train.labels), mean=_MEAN, std=_STD, device=torch.device("cpu")
    )
    stream = Batches(num, _BATCH, seed=0, replacement=False)
    batches = (examples.take(stream.next(), of=stream)[0] for _ in count())
    while True:
        for _ in islice(batches, _AHEAD):  # what was read while others were measured
            pass
        yield islice(batches, num // _BATCH)


def _write_photographs(folder: Path, num: int, size: int) -> None:
    """Write smooth noise as JPEG files about three times as large as they are wanted."""
    draw = seeding.numpy_generator(0, "bench photographs")
    for part, num_photos in (("train", num), ("test", 4)):
        for number in range(num_photos):
            place = folder / "photos" / part / f"class_{number % 4}"
            place.mkdir(parents=True, exist_ok=True)
            coarse = draw.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            photo = Image.fromarray(coarse).resize((4 * size, 3 * size), Image.Resampling.BICUBIC)
            photo.save(place / f"{number:05}.jpg", quality=85)


def _processes(parent: int) -> set[int]:
    """All processes below one; none where there is no `/proc`."""
    found: set[int] = set()
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # it may have ended
            found |= {int(pid) for pid in path.read_text().split()}
    return found.union(*map(_processes, found))


def _megabytes(processes: set[int]) -> float:
    """Memory of processes; a page that several share counts in parts."""
    total = 0
    for pid in processes:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000
