import copy
import pickle
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

import tuneparts.methods.partitioned
from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, TunepartsError, UnknownNameError
from tuneparts.data.config import Data
from tuneparts.methods.partitioned import fit
from tuneparts.methods.partitioned.fitted import Form, _settings_of


def _data():
    train = Data(name="stripes", num_train=60, num_val=0, num_test=10).load().train
    return train.inputs.astype(np.float32) / 255, train.labels


def _net(seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))


SETTINGS = {"steps": 20, "interval": 10, "batch_size": 8}


def test_the_ten_lines_of_the_docstring_run(capsys):
    doc = tuneparts.methods.partitioned.__doc__
    start = doc.index("    from torch import nn")
    lines = [line[4:] for line in doc[start:].split("\nFor a loop")[0].splitlines()]
    code = [line for line in lines if line]
    assert len(code) <= 11
    images, labels = _data()
    short = 'hypers="affine", steps=8, interval=4, batch_size=8'
    source = "\n".join(code).replace('hypers="affine"', short)
    assert short in source
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


class _Noisy(nn.Module):
    """Draws, and keeps statistics, in training mode only."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(64, 20), nn.BatchNorm1d(20)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(20, 10)

    def forward(self, x):
        h = self.drop(self.norm(self.first(x.flatten(1))).relu())
        return self.last(nn.functional.dropout(h, 0.2, self.training))


@pytest.mark.parametrize("retrain", [False, True])
def test_a_net_in_evaluation_mode_is_trained_as_one_in_training_mode(retrain):
    images, labels = _data()
    nets = []
    for mode in (True, False):
        with seeding.isolated(0, "init"):
            nets.append(_Noisy().train(mode))
    usual, given = (fit(net, images, labels, retrain=retrain, **SETTINGS) for net in nets)
    assert given.history == usual.history
    for one, other in zip(*(net.state_dict().values() for net in nets), strict=True):
        assert torch.equal(one, other)


def test_layers_are_in_their_modes_again_after_training_and_predictions():
    images, labels = _data()
    net = _Noisy()
    net.norm.eval()
    modes = {name: layer.training for name, layer in net.named_modules()}
    found = fit(net, images, labels, **SETTINGS)
    assert {name: layer.training for name, layer in net.named_modules()} == modes
    found.predict(images)
    assert {name: layer.training for name, layer in net.named_modules()} == modes


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


def test_a_batch_that_is_larger_than_the_data_is_refused_before_training():
    images, labels = _data()
    net, seen = nn.Sequential(*_net(), nn.Dropout(0.1)), []
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ConfigError, match=r"`batch_size` = 61: .* 60 examples"):
        fit(net, images, labels, steps=8, interval=4, batch_size=61, report=seen.append)
    assert not seen
    assert all(map(torch.equal, before, net.parameters()))
    assert type(net[-1]) is nn.Dropout


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_images_of_whole_numbers_are_refused_in_predictions_as_in_training(kind):
    images, labels = _data()
    found = fit(_net(), images, labels, hypers="noise", **SETTINGS)
    with pytest.raises(ConfigError, match=f"{np.dtype(kind)}.*`images / 255`"):
        found.predict((images * 255).astype(kind))


@pytest.mark.parametrize("form", get_args(Form))
def test_every_form_trains_predicts_and_says_how(form):
    images, labels = _data()
    found = fit(_net(), images, labels, hypers="rotation", form=form, **SETTINGS)
    assert found.settings["form"] == form
    assert found.settings["hyper_lr"] == 0.1  # so few steps cannot reach far
    assert found.settings["mixed"] is (form != "published")
    assert found.history[-1]["cost/steps"] == 20
    assert found.lml < 0
    assert found.predict(images).shape == (60, 10)


def test_settings_follow_the_data_and_can_be_given():
    few, many = (_settings_of("released", n, {}) for n in (1400, 60_000))
    assert (few["steps"], few["batch_size"]) == (2400, 50)
    assert _settings_of("released", 30, {})["batch_size"] == 30
    assert (many["steps"], many["batch_size"]) == (9375, 128)
    assert few["hyper_lr"] == pytest.approx(18 / 1800)
    assert few["release"].optimiser.lr == pytest.approx(1.5e-3)
    given = _settings_of("joint", 1400, {"steps": 100, "hyper_lr": 0.5, "hyper_every": 3})
    assert (given["steps"], given["hyper_lr"]) == (100, 0.5)
    assert "hyper_share" not in given
    part = _settings_of("released", 1400, {"steps": 100, "release": {"fraction": 0.5}})["release"]
    assert (part.fraction, part.optimiser.schedule) == (0.5, "cosine")
    with pytest.raises(UnknownNameError, match="released"):
        _settings_of("relased", 10, {})


def test_a_motion_that_is_named_alone_is_learnt_alone():
    images, labels = _data()
    found = fit(_net(), images, labels, hypers={"rotation": 0.1}, **SETTINGS)
    others = {name: value for name, value in found.hypers.items() if name != "rotation"}
    assert set(others.values()) == {0.0}
    assert found.hypers["rotation"] not in (0.0, 0.1)
    assert found.settings["hypers"].samples == 4


def test_a_retrained_net_is_an_ordinary_one_at_the_hypers_found():
    images, labels = _data()
    first, again = (
        fit(_net(), images, labels, hypers="rotation", retrain=r, **SETTINGS) for r in (False, True)
    )
    assert again.hypers == first.hypers
    assert again.lml == first.lml
    assert again.history[:2] == first.history
    assert [row["cost/steps"] for row in again.history] == [10, 20, 10, 20]
    assert again.learner.hypers.values() == {f"hyper/{n}": v for n, v in first.hypers.items()}
    assert again.learner.parts.num_partitions == 1
    for mine, its in zip(again.net.parameters(), again.learner.net.parameters(), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("retrain", [False, True])
def test_what_was_fitted_can_be_pickled(retrain):
    images, labels = _data()
    found = fit(_net(), images, labels, hypers="rotation", retrain=retrain, **SETTINGS)
    again = pickle.loads(pickle.dumps(found))
    assert again.hypers == found.hypers
    assert again.history == found.history
    assert torch.equal(again.predict(images), found.predict(images))
    weights = again.net.state_dict()
    assert all(torch.equal(weights[name], one) for name, one in found.net.state_dict().items())


def test_the_second_run_has_the_runtime_of_the_first_and_says_what_it_changed():
    images, labels = _data()
    found = fit(_net(), images, labels, retrain=True, runtime={"precision": "bf16"}, **SETTINGS)
    assert found.learner.config.runtime == found.settings["runtime"]
    assert found.learner.config.runtime.precision == "bf16"
    assert found.settings["optimiser"].schedule == "constant"
    assert found.settings["retrained"]["optimiser"].schedule == "cosine"
    assert found.settings["retrained"]["runtime"] == found.settings["runtime"]


def test_a_mask_of_vectors_is_retrained():
    images, labels = _data()
    found = fit(_net(), images.reshape(60, 64), labels, hypers="mask", retrain=True, **SETTINGS)
    assert found.learner.hypers.values()["hyper/keep.0"] == found.hypers["keep.0"]


def test_hypers_have_held_values_too_so_that_a_config_can_take_them_over():
    images, labels = _data()
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 10)
    )
    found = fit(net, images, labels, hypers="rotation", **SETTINGS)
    assert found.hypers["shear"] == 0.0
    assert found.hypers["dropout.0"] == 0.4
    assert found.settings["hypers"].at(found.hypers).affine.rotation == found.hypers["rotation"]


def test_predictions_are_made_in_batches():
    images, labels = _data()
    found = fit(_net(), images, labels, **SETTINGS)
    sizes = []
    predict = found.learner.predict
    found.learner.predict = lambda x, generator: sizes.append(len(x)) or predict(x, generator)
    whole = found.predict(images)
    parts = found.predict(images, batch_size=25)
    assert sizes == [60, 25, 25, 10]
    torch.testing.assert_close(parts, whole)
    assert found.net.training


def test_what_was_found_is_shown_in_a_line_a_table_and_a_picture():
    images, labels = _data()
    found = fit(_net(), images, labels, hypers=["rotation", "temperature"], **SETTINGS)
    text = repr(found)
    assert text.startswith("Fitted(")
    assert len(text) < 400
    assert f"rotation {found.hypers['rotation']:.3g} rad" in text
    assert "<th" in found._repr_html_()
    assert "rotation" in found._repr_html_()
    lines = {line.name: line for line in found.plot().data}
    assert list(lines["rotation (rad)"].y) == [row["hyper/rotation"] for row in found.history]
    assert list(lines["loss of weights"].x) == [10, 20]


def test_the_net_drops_out_again_where_it_did():
    images, labels = _data()

    def net():
        with seeding.isolated(0, "init"):
            return nn.Sequential(
                nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 10)
            )

    plain = fit(net(), images, labels, **SETTINGS).net
    assert type(plain[3]) is nn.Dropout
    assert plain[3].p == 0.4
    x = torch.from_numpy(images)
    assert not torch.equal(plain.train()(x), plain(x))
    learnt = fit(net(), images, labels, hypers="dropout", **SETTINGS)
    assert learnt.net[3].p == learnt.hypers["dropout.0"]
    assert torch.equal(learnt.predict(x), learnt.net.eval()(x))


class _Tupled(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


class _Stopped(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


IMAGES, LABELS = np.zeros((12, 1, 8, 8), np.float32), np.arange(12) % 10
REFUSED = {
    "bytes": ({"inputs": IMAGES.astype(np.uint8)}, "`images / 255`"),
    "no channels": ({"inputs": IMAGES[:, 0], "hypers": "rotation"}, r"images \(C, H, W\)"),
    "from 1": ({"labels": LABELS + 1}, "has 10 for 11 classes .labels count from 0"),
    "negative": ({"labels": LABELS - 1}, "from 0 on"),
    "few logits": ({"net": nn.Sequential(nn.Flatten(), nn.Linear(64, 3))}, "has 3 for 10"),
    "labels missing": ({"labels": LABELS[:-1]}, "one label"),
    "real labels": ({"labels": LABELS.astype(np.float32)}, "one label"),
    "drawn again": ({"defaults": "seed"}, "drawn again"),
    "unknown field": ({"pases": 3}, "Did you mean `steps`"),
    "no steps": ({"steps": 0}, "steps"),
    "steps in words": ({"steps": "many"}, "steps"),
    "unknown hyper": ({"hypers": "rotaton"}, "rotation"),
    "motions twice": ({"hypers": {"rotation": 0.1, "affine": {}}}, "inside `affine`"),
    "a mask of images": ({"hypers": "mask", "retrain": True}, "Leave `retrain` out"),
    "mirrored vectors": ({"inputs": IMAGES.reshape(12, 64), "hypers": "flip"}, "`flip` acts on im"),
    "tuple": ({"net": nn.Sequential(nn.Flatten(), _Tupled(64, 10))}, "gave tuple"),
    "float64": ({"net": _net().double()}, "Float and Double"),
    "no parameters": ({"net": nn.Flatten()}, "must have weights to deal out"),
    "lazy": ({"net": nn.Sequential(nn.Flatten(), nn.LazyLinear(10))}, "uninitialized"),
    "parallel": ({"net": nn.DataParallel(_net())}, "`net.module`"),
    "no gradient": ({"net": nn.Sequential(nn.Flatten(), _Stopped(64, 10))}, "grad"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_before_anything_changes(case):
    fields, message = REFUSED[case]
    given = {"net": _net(), "inputs": IMAGES, "labels": LABELS, **SETTINGS, **fields}
    net = given.pop("net").eval()
    before, drawn = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with pytest.raises(TunepartsError, match=message):
        fit(net, given.pop("inputs"), given.pop("labels"), **given)
    assert torch.equal(torch.get_rng_state(), drawn)
    if case != "lazy":  # whose weights have no values yet
        torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert not any(layer.training for layer in net.modules())


class _Attends(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.place = nn.Parameter(torch.zeros(8, 8))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x[:, 0] + self.place).mean(1))


class _Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x.flatten(1)).relu()).relu())


@pytest.mark.parametrize("kind", [_Attends, _Tied])
def test_nets_with_attention_and_with_tied_weights_are_fitted(kind):
    images, labels = _data()

    def fitted():
        with seeding.isolated(0, "init"):
            net = kind()
        return fit(net, images, labels, hypers="rotation", **SETTINGS)

    found = fitted()
    assert "single weights are dealt out" in found.settings["note"]
    assert all(torch.isfinite(p).all() for p in found.net.parameters())
    assert fitted().history == found.history
    if kind is _Tied:
        assert found.net.second.weight is found.net.first.weight
        by_units = fit(kind(), images, labels, form="joint", scheme="node", **SETTINGS)
        assert by_units.settings["scheme"] == "node"


def test_pixels_that_were_not_scaled_are_told_and_no_hypers_may_be_none():
    images = np.random.default_rng(0).uniform(0, 255, (40, 1, 8, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.warns(UserWarning, match="these go up to 25"):
        found = fit(net, images, labels, hypers=None, steps=2, interval=2, batch_size=8)
    assert found.hypers == {}
