import numpy as np
import pytest
import torch

from tuneparts.core.errors import ConfigError
from tuneparts.data.own import given_examples, given_task


def test_tensors_and_arrays_become_the_same_task():
    x, y = torch.arange(12.0).view(3, 4), torch.tensor([0, 2, 1])
    for inputs, labels in ((x, y), (x.numpy().astype(np.float64), y.numpy().astype(np.uint8))):
        task = given_task(given_examples(inputs, labels), given_examples(inputs[:2], labels[:2]))
        assert task.train.inputs.dtype == np.float32
        assert task.train.labels.dtype == np.int64
        assert task.in_shape == (4,)
        assert (len(task.train), len(task.val), len(task.test)) == (3, 2, 0)
        assert task.num_classes == 3


@pytest.mark.parametrize(
    "labels", [np.zeros(2, np.int64), np.zeros(3), np.zeros((3, 1), np.int64), np.array([0, -1, 0])]
)
def test_what_is_no_class_per_input_is_refused(labels):
    with pytest.raises(ConfigError, match="one label"):
        given_examples(np.zeros((3, 4)), labels)


def test_inputs_without_features_are_refused():
    with pytest.raises(ConfigError, match=r"inputs \(3,\)"):
        given_examples(np.zeros(3), np.zeros(3, np.int64))
