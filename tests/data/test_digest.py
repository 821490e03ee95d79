"""The digest changes with whatever a learner could see, and with nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from tuneparts.data.config import DataConfig
from tuneparts.data.task import Examples, Task, digest

CONFIG = DataConfig(name="blobs", num_train=30, num_val=10, num_test=10)


def test_equal_loads_have_equal_digests() -> None:
    assert digest(CONFIG.load()) == digest(CONFIG.load())


@pytest.mark.parametrize(
    "changes",
    [{"num_train": 29}, {"num_val": 9}, {"num_test": 9}, {"seed": 1}, {"target": "values"}],
)
def test_another_split_or_target_has_another(changes) -> None:
    assert digest(CONFIG.replaced(changes).load()) != digest(CONFIG.load())


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_one_number_changes_it(part: str) -> None:
    task = CONFIG.load()
    old: Examples = getattr(task, part)
    inputs, labels = np.array(old.inputs), old.labels.copy()
    inputs[-1, -1] += 1e-3
    labels[0] = (labels[0] + 1) % 3
    others: list[Task] = [
        replace(task, **{part: Examples(inputs, old.labels)}),
        replace(task, **{part: Examples(old.inputs, labels)}),
        replace(task, mean=(0.5,)),
    ]
    assert len({digest(task), *map(digest, others)}) == 4


def test_images_on_disk_are_known_by_file_and_rows(data_dir, write_image, monkeypatch) -> None:
    from tuneparts.data import images as image_files

    for part in ("train", "test"):
        for name in ("a", "b"):
            for i in range(4):
                write_image(data_dir / "f" / part / name / f"{i}.png", 10 * i)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 0)
    found = {digest(DataConfig(name="folder:f", num_train=num).load()) for num in (4, 4, 6)}
    assert len(found) == 2
