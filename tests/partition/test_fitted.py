import numpy as np
import pytest
import torch
from torch import nn

import tuneparts.partition
from tuneparts import seeding
from tuneparts.data.config import DataConfig
from tuneparts.errors import ConfigError, DivergedError
from tuneparts.partition import fit


def _data():
    train = DataConfig(name="stripes", num_train=60, num_val=0, num_test=10).load().train
    return train.inputs.astype(np.float32) / 255, train.labels


def _net(seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))


SETTINGS = {"passes": 20, "interval": 10, "batch_size": 8}


def test_the_ten_lines_of_the_docstring_run(capsys):
    doc = tuneparts.partition.__doc__
    start = doc.index("    from torch import nn")
    lines = [line[4:] for line in doc[start:].split("\nFor a loop")[0].splitlines()]
    code = [line for line in lines if line]
    assert len(code) <= 11
    images, labels = _data()
    source = "\n".join(code).replace("passes=4000", "passes=8, interval=4, batch_size=8")
    names = {"images": images, "labels": labels}
    with seeding.isolated(0, "init"):
        exec(source, names)
    rotation, lml = map(float, capsys.readouterr().out.split())
    assert 0 < rotation < 1
    assert lml < 0
    assert names["logits"].shape == (60, 10)


def test_the_given_net_is_trained_in_place_and_ordinary_afterwards():
    images, labels = _data()
    net = _net()
    before = [p.detach().clone() for p in net.parameters()]
    seen = []
    found = fit(net, images, labels, report=seen.append, **SETTINGS)
    assert found.net is net
    assert not any(map(torch.equal, before, net.parameters()))
    assert seen == found.history
    assert len(seen) == 2
    x = torch.from_numpy(images[:5])
    assert torch.equal(found.predict(x), net(x))
    assert found.lml == seen[0]["lml/total"]  # known until the release


def test_arrays_and_tensors_give_the_same_and_seeds_differ():
    images, labels = _data()
    first = fit(_net(), images, labels, **SETTINGS)
    again = fit(_net(), torch.from_numpy(images), torch.from_numpy(labels), **SETTINGS)
    other = fit(_net(), images, labels, seed=1, **SETTINGS)
    assert first.history == again.history
    assert first.history != other.history


def test_a_single_chunk_has_no_evidence():
    images, labels = _data()
    found = fit(_net(), images, labels, proportions=(1.0,), **SETTINGS)
    assert np.isnan(found.lml)
    assert found.hypers == {}


def test_what_cannot_be_fitted_is_refused():
    images, labels = _data()
    with pytest.raises(ConfigError, match="one label"):
        fit(_net(), images, labels[:-1], **SETTINGS)
    with pytest.raises(ConfigError, match="one label"):
        fit(_net(), images, labels.astype(np.float32), **SETTINGS)
    with pytest.raises(ConfigError, match="drawn again"):
        fit(_net(), images, labels, defaults="seed", **SETTINGS)
    with pytest.raises(ConfigError, match="Did you mean `passes`"):
        fit(_net(), images, labels, pases=3)


def test_a_run_that_diverges_says_so():
    images, labels = _data()
    with pytest.raises(DivergedError, match="must stay finite"):
        fit(_net(), images, labels, optimiser={"kind": "sgd", "lr": 1e25}, **SETTINGS)
