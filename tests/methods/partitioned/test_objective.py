import math

import numpy as np
import pytest
import torch

from tuneparts.data.chunks import Chunks
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Classes
from tuneparts.data.task import Examples
from tuneparts.methods.partitioned.steps import evidence

CPU = torch.device("cpu")


def _examples(inputs, labels):
    examples = Examples(np.asarray(inputs, np.float32), np.asarray(labels, np.int64))
    return DeviceExamples(examples, mean=(0.0,), std=(1.0,), device=CPU)


def _predict(level, x):
    """Logits (level * x, 0): the subnetwork's number is its only weight."""
    return torch.stack([level * x[:, 0], torch.zeros(len(x))], dim=1)


def test_the_value_by_hand_on_six_examples():
    inputs = [[0.5], [-1.0], [2.0], [0.1], [-0.3], [1.5]]
    labels = [0, 1, 0, 0, 1, 1]
    chunks = Chunks(6, (3, 2, 1), seed=0)
    expected = {}
    for k in (2, 3):
        expected[k] = 0.0
        for i in chunks.chunk(k):
            z = (k - 1) * inputs[i][0]
            sign = 1 if labels[i] == 0 else -1
            expected[k] += -math.log1p(math.exp(-sign * z))
    found = evidence(_predict, _examples(inputs, labels), chunks, loss=Classes().loss, batch_size=2)
    assert found.total == pytest.approx(sum(expected.values()), rel=1e-6)
    metrics = found.metrics()
    assert metrics["lml/total"] == found.total
    assert metrics["lml/per_example"] == pytest.approx(found.total / 3)
    assert metrics["lml/term.2"] == pytest.approx(expected[2] / 2, rel=1e-6)
    assert metrics["lml/term.3"] == pytest.approx(expected[3], rel=1e-6)
    assert set(metrics) == {"lml/total", "lml/per_example", "lml/term.2", "lml/term.3"}


def test_order_within_a_chunk_and_the_batch_size_do_not_matter():
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(40, 1)), rng.integers(0, 2, 40)
    chunks = Chunks(40, (0.5, 0.25, 0.25), seed=1)
    order = np.arange(40)
    for k in (1, 2, 3):  # examples change places inside their chunk
        own = chunks.chunk(k)
        order[own] = rng.permutation(own)
    a = evidence(_predict, _examples(inputs, labels), chunks, loss=Classes().loss, batch_size=40)
    b = evidence(
        _predict, _examples(inputs[order], labels[order]), chunks, loss=Classes().loss, batch_size=3
    )
    assert a.total == pytest.approx(b.total, rel=1e-12)


def test_a_chunk_without_examples_has_no_term():
    chunks = Chunks(4, (2, 2, 0), seed=0)
    found = evidence(
        _predict, _examples([[1.0]] * 4, [0] * 4), chunks, loss=Classes().loss, batch_size=9
    )
    assert list(found.sums) == [2]
