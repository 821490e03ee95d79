"""Nothing of a net leaks past the partitions, and nothing of it is random without a seed."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.nets import GivenNet
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

FIELDS = {"steps": 12, "interval": 6, "batch_size": 8, "hypers": {"noise": 0.1}}


def _learner(task, make, seed=0, **fields):
    def seeded():
        with seeding.isolated(0, "net"):
            return make()

    config = parse(Partitioned, {**PUBLISHED, **FIELDS, **fields, "net": GivenNet(seeded)})
    return config.build(Context(task=task, seed=seed, device=torch.device("cpu")))


class _Remembers(nn.Module):
    """Centres its inputs by a running mean of its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.linear(x - self.mean)


class _Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 20), nn.Linear(20, 10)

    def forward(self, x):
        h = self.first(x.flatten(1)).relu()
        return self.last(nn.functional.dropout(h, 0.5, self.training))


def _channels():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(144, 10)
    )


def _normed():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )


def test_a_net_that_remembers_its_batches_is_refused(stripes):
    with pytest.raises(ConfigError, match="the buffer `mean`"):
        _learner(stripes, _Remembers)


@pytest.mark.parametrize("make", [_Functional, _channels])
@pytest.mark.parametrize("fields", [{}, {"finetune": {}}])
def test_what_draws_globally_is_seeded_by_the_run(stripes, make, fields):
    rows = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        learner = _learner(stripes, make, **fields)
        rows.append([learner.advance(), learner.advance()])
        assert torch.equal(before, torch.get_rng_state())
    assert rows[0] == rows[1]
    stopped, resumed = (_learner(stripes, make, **fields) for _ in range(2))
    stopped.advance()
    torch.manual_seed(3)
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(stopped.state_dict())))
    assert resumed.advance() == rows[0][1]


def test_scores_read_statistics_of_the_chunks_that_a_subnetwork_may_see(stripes):
    learner = _learner(stripes, _normed, hypers={})
    learner.advance()
    before = {name: tensor.clone() for name, tensor in learner.parts.state_dict().items()}
    for level in (1, 2, 3):
        view = learner.parts.view(level)
        x, _ = learner.train_data.take(torch.from_numpy(learner.chunks.cumulative(level).copy()))
        h = nn.functional.conv2d(x, view.tensors["0.weight"], view.tensors["0.bias"])
        learner.scored_subnetwork(level)
        found = learner._calibrated[level].tensors
        torch.testing.assert_close(found["1.running_mean"], h.mean((0, 2, 3)))
        torch.testing.assert_close(found["1.running_var"], h.transpose(0, 1).flatten(1).var(1))
    assert all(torch.equal(before[n], t) for n, t in learner.parts.state_dict().items())


def test_recalibration_changes_no_later_step_and_is_kept_in_the_final_net(stripes):
    seldom, often = (_learner(stripes, _normed, interval=i, lml_every=9) for i in (12, 3))
    rows = [seldom.advance()]
    while not often.finished:
        rows.append(often.advance())
    names = [name for name in rows[0] if not name.startswith("train/")]
    assert [rows[0][n] for n in names] == [rows[-1][n] for n in names]
    x, _ = often._test.take(torch.arange(20))
    outputs = often.predict(x, often.generator("evaluate test"))
    kept = often.trained_net().eval()(_noised(often, x))
    torch.testing.assert_close(kept, outputs)


def _noised(learner, x):
    generator = learner.generator("evaluate test")
    return learner.hypers.inputs(x, generator, training=False)


def test_statistics_never_come_from_a_later_chunk(stripes):
    learner = _learner(stripes, _normed)
    learner.advance()
    term = learner.evidence().sums[2]
    last = learner.chunks.chunk(3)
    learner.train_data = copy.copy(learner.train_data)  # other tests read the same examples
    learner.train_data._inputs = learner.train_data._inputs.clone()
    learner.train_data._inputs[torch.from_numpy(last.copy())] += 50
    learner._calibrated.clear()
    assert np.isclose(learner.evidence().sums[2], term, rtol=0, atol=0)
