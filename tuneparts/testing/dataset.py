"""The contract of a data set: what every one keeps, ours or not."""

import hashlib
import json
from typing import ClassVar

import numpy as np

from tuneparts.core.config import parse
from tuneparts.data.config import DataConfig
from tuneparts.data.task import Examples, Task, digest


class DatasetContract:
    """The laws of a data set and its splits; nothing is trained.

    Inherit it in a class that pytest collects, and name the data, with at least four training
    examples.

    Example:
        >>> class TestMine(DatasetContract):
        ...     data = DataConfig(name="blobs", num_train=40, num_val=10, num_test=10)
        >>> TestMine().test_it_loads_equal_twice()
    """

    data: ClassVar[DataConfig]
    has_duplicates: ClassVar[bool] = False
    """Whether equal examples occur more than once, so that parts cannot be told apart."""

    def test_it_survives_json(self) -> None:
        """A worker, and whoever resumes the run, gets it as JSON."""
        back = parse(DataConfig, json.loads(self.data.model_dump_json()))
        assert back == self.data

    def test_it_loads_equal_twice(self) -> None:
        """A run that goes on after a crash loads it anew: random draws have a seed."""
        assert digest(self.data.load()) == digest(self.data.load())

    def test_no_part_is_empty_but_validation(self) -> None:
        task = self.data.load()
        assert len(task.train) >= 4
        assert len(task.test) > 0

    def test_parts_are_alike(self) -> None:
        task = self.data.load()
        for part in (task.val, task.test):
            assert part.inputs.shape[1:] == task.in_shape
            assert part.inputs.dtype == task.train.inputs.dtype
            assert part.labels.shape[1:] == task.train.labels.shape[1:]
            assert part.labels.dtype == task.train.labels.dtype

    def test_parts_are_disjoint(self) -> None:
        """An example in two parts would make a score too good."""
        if self.has_duplicates:
            return
        task = self.data.load()
        parts = [_names(part) for part in (task.train, task.val, task.test)]
        assert len(set().union(*parts)) == sum(map(len, parts))

    def test_a_smaller_training_part_lies_in_a_larger_one(self) -> None:
        large, small = self.data.load(), self._halved()
        assert _names(small.train) <= _names(large.train)
        for part in ("val", "test"):
            assert _names(getattr(small, part)) == _names(getattr(large, part))

    def test_another_seed_chooses_other_examples(self) -> None:
        one, other = self._halved(), self._halved(seed=(self.data.seed or 0) + 1)
        assert not np.array_equal(one.train.inputs, other.train.inputs)

    def test_its_target_takes_its_labels(self) -> None:
        """Outputs of zero have a finite loss and the scores that the target declares."""
        import torch

        task = self.data.load()
        y = torch.as_tensor(task.test.labels)
        outputs = torch.zeros(len(y), task.num_outputs)
        losses_B = task.target.loss(outputs, y, reduction="none")
        assert losses_B.shape == (len(y),)
        assert bool(torch.isfinite(losses_B).all())
        declared = {metric.name for metric in task.target.metrics}
        assert set(task.target.scores(outputs, y)) <= declared

    def _halved(self, **changes: int) -> Task:
        num = len(self.data.load().train) // 2
        return self.data.replaced({"num_train": num, **changes}).load()


def _names(examples: Examples) -> set[bytes]:
    """A name for each example, by its input and label."""
    return {
        hashlib.sha256(
            np.asarray(examples.inputs[i : i + 1]).tobytes() + examples.labels[i].tobytes()
        ).digest()
        for i in range(len(examples))
    }
