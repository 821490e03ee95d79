"""Bench of reading: photographs on disk, beside torchvision's `ImageFolder` in a `DataLoader`.

All sides make the same batches of scaled and normalised images from the same JPEG files, in as many
processes. They take turns, an epoch each, with nothing of it read before the clock starts. The
clock is that of the wall, since most work is in other processes.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from tuneparts import seeding, torchvision_door
from tuneparts.bench import machine
from tuneparts.data.batches import Batches
from tuneparts.data.config import DataConfig
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.stored import StoredImages
from tuneparts.data.task import Examples

READERS = 2
_BATCH = 50
_AHEAD = 2 * READERS
"""Batches that may have been read before their epoch begins."""
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Epochs = Iterator[Iterator[Tensor]]


def run(*, quick: bool = False) -> dict[str, Any]:
    """Time of an epoch by torchvision over ours; rows are printed as they come."""
    num, size, rounds = (100, 32, 1) if quick else (1200, 128, 5)
    with tempfile.TemporaryDirectory() as folder, _readers(Path(folder) / "cache"):
        _photographs(Path(folder), num, size)
        ways: dict[str, Callable[[], Epochs]] = {
            "torchvision": lambda: _theirs(Path(folder), size),
            "ours, decoded always": lambda: _ours(Path(folder), num, size, "always"),
            "ours, decoded once": lambda: _ours(Path(folder), num, size, "once"),
        }
        rows, epochs = [], {}
        for name, start in ways.items():
            before, begin = _processes(), time.perf_counter()
            epochs[name] = start()
            for _ in next(epochs[name]):
                pass
            first = time.perf_counter() - begin
            new = _processes() - before
            rows.append({"way": name, "first epoch s": first, "readers MB": _megabytes(new)})
        calls = {name: lambda one=one: _seconds(next(one)) for name, one in epochs.items()}
        seconds = machine.interleave(calls, rounds=rounds)
    for row in rows:
        found = machine.spread(seconds[str(row["way"])])
        row |= {"images/s": num / found["median"], "epoch s": found["median"]}
        row |= {"fastest": found["fastest"], "slowest": found["slowest"]}
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
    ratios = {
        f"folder_over_ours.{way}": machine.spread(
            [
                theirs / ours
                for theirs, ours in zip(
                    seconds["torchvision"], seconds[f"ours, decoded {way}"], strict=True
                )
            ]
        )["median"]
        for way in ("always", "once")
    }
    return {"bench": "data", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _seconds(batches: Iterator[Tensor]) -> float:
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def _theirs(folder: Path, size: int) -> Epochs:
    """As in torchvision's own recipes, without augmentation."""
    vision = torchvision_door.load()
    steps = [
        vision.transforms.Resize(size),
        vision.transforms.CenterCrop(size),
        vision.transforms.ToTensor(),
        vision.transforms.Normalize(_MEAN, _STD),
    ]
    photos = vision.datasets.ImageFolder(
        str(folder / "photos" / "train"), vision.transforms.Compose(steps)
    )
    loader = DataLoader(
        photos,
        batch_size=_BATCH,
        shuffle=True,
        num_workers=READERS,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (x for x, _ in loader)


def _ours(folder: Path, num: int, size: int, decode: str) -> Epochs:
    """What a learner does; small sets are kept on disk here as large ones are."""
    os.environ["TUNEPARTS_DECODE"] = decode
    task = DataConfig(
        name=f"folder:{folder / 'photos'}", num_train=num, num_val=0, num_test=4, image_size=size
    ).load()
    images = task.train.inputs
    if not isinstance(images, StoredImages):
        images = StoredImages(next((folder / "cache" / "decoded").glob("*train*.npy")))
    examples = DeviceExamples(
        Examples(images, task.train.labels), mean=_MEAN, std=_STD, device=torch.device("cpu")
    )
    stream = Batches(num, _BATCH, seed=0, replacement=False)

    def endless() -> Iterator[Tensor]:
        while True:
            yield examples.take(stream.next(), of=stream)[0]

    batches = endless()
    while True:
        for _ in islice(batches, _AHEAD):  # what was read while others were measured
            pass
        yield islice(batches, num // _BATCH)


@contextmanager
def _readers(cache: Path) -> Iterator[None]:
    """Set how many processes read, and where decoded images lie; put back afterwards."""
    own = {"TUNEPARTS_READERS": str(READERS), "TUNEPARTS_CACHE": str(cache)}
    before = {name: os.environ.get(name) for name in (*own, "TUNEPARTS_DECODE")}
    os.environ |= own
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _photographs(folder: Path, num: int, size: int) -> None:
    """Write smooth noise as JPEG files about three times as large as they are wanted."""
    draw = seeding.numpy_generator(0, "bench photographs")
    for part, count in (("train", num), ("test", 4)):
        for number in range(count):
            place = folder / "photos" / part / f"class_{number % 4}"
            place.mkdir(parents=True, exist_ok=True)
            coarse = draw.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            photo = Image.fromarray(coarse).resize((4 * size, 3 * size), Image.Resampling.BICUBIC)
            photo.save(place / f"{number:05}.jpg", quality=85)


def _processes() -> set[int]:
    """All processes below this one; none where there is no `/proc`."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):  # it may have ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {os.getpid()}


def _megabytes(processes: set[int]) -> float:
    """Memory of processes; a page that several share counts in parts."""
    total = 0
    for pid in processes:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000
