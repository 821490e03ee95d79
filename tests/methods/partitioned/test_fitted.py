import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import tuneparts as tp
import tuneparts.methods.partitioned
from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, TunepartsError
from tuneparts.methods.partitioned.fitted import _settings


def _data():
    train = tp.data.Data(name="stripes", num_train=60, num_val=0, num_test=10).load().train
    return train.inputs.astype(np.float32) / 255, train.labels


def _net(seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))


SHORT = {"interval": 10, "batch_size": 8}
ROTATION = tp.Affine(**{**dict.fromkeys(tp.Affine.NAMES, 0.0), "rotation": 0.1})
"""Learnt alone: a motion at 0 is held there."""


def fit(net, inputs, labels, hypers=(), **given):
    settings = {"steps": 20, "method": SHORT, **given}
    return tp.PartitionedClassifier(net, hypers, **settings).fit(inputs, labels)


def test_the_ten_lines_of_the_docstring_run(capsys):
    doc = tuneparts.methods.partitioned.__doc__
    start = doc.index("    from torch import nn")
    lines = [line[4:] for line in doc[start:].split("\nFor a loop")[0].splitlines()]
    code = [line for line in lines if line]
    assert len(code) <= 11
    images, labels = _data()
    short = "hypers=tp.Affine(), steps=8"
    source = "\n".join(code).replace("hypers=tp.Affine()", short)
    assert short in source
    names = {"images": images, "labels": labels}
    with seeding.isolated(0, "init"):
        exec(source, names)
    rotation, lml = map(float, capsys.readouterr().out.split())
    assert 0 < rotation < np.pi
    assert lml < 0
    assert names["predicted"].shape == (60,)


def test_a_copy_of_the_net_is_trained_and_ordinary_afterwards():
    images, labels = _data()
    net = _net()
    before = copy.deepcopy(net.state_dict())
    found = fit(net, images, labels)
    assert found.net is net
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    pairs = zip(net.parameters(), found.net_.parameters(), strict=True)
    assert not any(torch.equal(one, other) for one, other in pairs)
    assert len(found.history_) == 2
    with torch.no_grad():
        logits = found.net_(torch.from_numpy(images[:5]))[:, :4]  # there are four classes
    torch.testing.assert_close(
        torch.from_numpy(found.predict_proba(images[:5])), logits.double().softmax(1)
    )
    assert found.predict(images[:5]).tolist() == logits.argmax(1).tolist()
    assert found.lml_ == found.history_[0]["lml/total"]  # known until fine-tuning
    assert found.fit(images, labels).history_ == fit(net, images, labels).history_


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
    usual, given = (fit(net, images, labels, retrain=retrain) for net in nets)
    assert given.history_ == usual.history_
    torch.testing.assert_close(usual.net_.state_dict(), given.net_.state_dict(), rtol=0, atol=0)


def test_layers_have_the_modes_of_the_given_ones_after_training_and_predictions():
    images, labels = _data()
    net = _Noisy()
    net.norm.eval()
    modes = {name: layer.training for name, layer in net.named_modules()}
    found = fit(net, images, labels)
    assert {name: layer.training for name, layer in found.net_.named_modules()} == modes
    found.predict(images)
    assert {name: layer.training for name, layer in found.net_.named_modules()} == modes


def test_arrays_and_tensors_give_the_same_and_seeds_differ():
    images, labels = _data()
    first = fit(_net(), images, labels)
    again = fit(_net(), torch.from_numpy(images), torch.from_numpy(labels))
    other = fit(_net(), images, labels, seed=1)
    assert first.history_ == again.history_
    assert first.history_ != other.history_


def test_labels_are_strings_or_any_numbers():
    images, labels = _data()
    numbered, named = (fit(_net(), images, y) for y in (labels, np.array([*"klmn"])[labels]))
    far = fit(_net(), images, labels * 11 - 5)
    assert named.classes_.tolist() == [*"klmn"]
    assert named.history_ == numbered.history_ == far.history_
    assert named.predict(images).tolist() == named.classes_[numbered.predict(images)].tolist()
    assert set(far.predict(images)) <= set(labels * 11 - 5)
    assert named.score(images, named.classes_[labels]) == numbered.score(images, labels)


def test_one_output_is_the_log_odds_of_the_second_of_two_classes():
    images, labels = _data()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 1))
    found = fit(net, images, np.array(["no", "yes"])[labels % 2])
    with torch.no_grad():
        odds = found.net_(torch.from_numpy(images))[:, 0].double().exp().numpy()
    np.testing.assert_allclose(found.predict_proba(images)[:, 1], odds / (1 + odds), rtol=1e-5)


def test_a_config_of_a_net_is_built_for_the_data():
    images, labels = _data()
    found = fit(tp.nets.Mlp(widths=(20,)), images, labels)
    assert found.net_(torch.from_numpy(images)).shape == (60, 4)


def test_whole_numbers_become_real_ones_unless_the_net_takes_tokens():
    tokens = np.random.default_rng(0).integers(0, 9, (60, 5))
    labels = tokens[:, 0] % 2
    reads = nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(40, 2))
    assert fit(reads, tokens, labels).predict(tokens).shape == (60,)
    real = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 2))
    found, same = fit(real, tokens, labels), fit(real, tokens.astype(float), labels)
    assert found.history_ == same.history_
    assert np.array_equal(found.predict_proba(tokens), same.predict_proba(tokens.astype(float)))


def test_a_single_chunk_has_no_evidence():
    images, labels = _data()
    found = fit(_net(), images, labels, method={**SHORT, "proportions": (1.0,)})
    assert np.isnan(found.lml_)
    assert found.hypers_ == {}


def test_a_batch_that_is_larger_than_the_data_is_refused_before_training(monkeypatch):
    images, labels = _data()
    monkeypatch.setattr("tuneparts.methods.partitioned.fitted.run_through", None)
    found = tp.PartitionedClassifier(_net(), steps=8, method={"batch_size": 61})
    with pytest.raises(ConfigError, match=r"`batch_size` = 61: .* 60 examples"):
        found.fit(images, labels)
    with pytest.raises(NotFittedError):
        found.predict(images)


def test_fewer_than_fifty_examples_are_one_batch():
    images, labels = _data()
    found = tp.PartitionedClassifier(_net(), steps=4).fit(images[:30], labels[:30])
    assert found.method_.batch_size == 30


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_images_of_whole_numbers_are_refused_in_predictions_as_in_training(kind):
    images, labels = _data()
    found = fit(_net(), images, labels, tp.hypers.Noise())
    whole = (images * 255).astype(kind)
    for called in (lambda: found.predict(whole), lambda: clone(found).fit(whole, labels)):
        with pytest.raises(ConfigError, match=f"{np.dtype(kind)}.*`images / 255`"):
            called()


FORMS = {
    "default": {},
    "strongest": tp.Partitioned(**SHORT),
    "published": tp.Partitioned.published(**SHORT),
    "joint": {"hyper_share": 0.2},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_trains_predicts_and_says_how(form):
    images, labels = _data()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 60), nn.ReLU(), nn.Linear(60, 10))
    found = fit(net, images, labels, ROTATION, method=FORMS[form])
    used = found.method_
    assert used.hyper_lr == 0.1  # so few steps cannot reach far
    assert used.mixed is (form == "strongest")
    assert bool(used.hyper_share) is (form in ("strongest", "joint"))
    assert (used.finetune is None) is (form == "published")
    assert found.history_[-1]["cost/steps"] == 20
    assert found.lml_ < 0
    assert found.predict_proba(images).shape == (60, 4)


def test_settings_follow_the_data_and_can_be_given():
    def chosen(num, **given):
        config = tp.Partitioned(**given)
        return tp.Partitioned(**_settings(config, given, num))

    few, many = (chosen(n, hypers=tp.Affine(shear=0.1)) for n in (1400, 60_000))
    assert (few.steps, few.batch_size, few.interval) == (2400, 50, 120)
    assert chosen(30).batch_size == 30
    assert (many.steps, many.batch_size) == (9375, 128)
    assert few.hyper_lr == pytest.approx(27 / 1800)
    assert tp.Partitioned.published().hyper_every == 1
    published = chosen(1400, hyper_share=0.0, finetune=None)
    assert published.hyper_lr == pytest.approx(27 / 1200)
    assert (few.hypers.affine.scale_x, few.hypers.affine.shear) == (0.3, 0.1)
    assert few.hypers.affine.rotation == pytest.approx(np.pi / 2)
    held = tp.hypers.Hypers(affine=tp.Affine(), frozen=("affine",))
    assert chosen(1400, hypers=held).hypers.affine.rotation == tp.Affine().rotation
    given = chosen(1400, steps=100, hyper_lr=0.5, optimiser={"lr": 0.1})
    assert (given.steps, given.hyper_lr, given.optimiser.lr) == (100, 0.5, 0.1)


def test_a_motion_that_is_alone_is_learnt_alone():
    images, labels = _data()
    found = fit(_net(), images, labels, ROTATION)
    others = {name: value for name, value in found.hypers_.items() if name != "rotation"}
    assert set(others.values()) == {0.0}
    assert found.hypers_["rotation"] not in (0.0, 0.1)
    assert found.method_.hypers.samples == 4


def test_a_retrained_net_is_an_ordinary_one_at_the_hypers_found():
    images, labels = _data()
    first, again = (fit(_net(), images, labels, ROTATION, retrain=r) for r in (False, True))
    assert again.hypers_ == first.hypers_
    assert again.lml_ == first.lml_
    assert again.history_[:2] == first.history_
    assert [row["cost/steps"] for row in again.history_] == [10, 20, 10, 20]
    learner = again._learner
    assert learner.hypers.values() == {f"hyper/{n}": v for n, v in first.hypers_.items()}
    assert learner.parts.num_partitions == 1
    for mine, its in zip(again.net_.parameters(), learner.net.parameters(), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("retrain", [False, True])
def test_what_was_fitted_can_be_pickled(retrain):
    images, labels = _data()
    found = fit(_net(), images, labels, ROTATION, retrain=retrain)
    again = pickle.loads(pickle.dumps(found))
    assert again.hypers_ == found.hypers_
    assert again.history_ == found.history_
    assert np.array_equal(again.predict_proba(images), found.predict_proba(images))
    weights = again.net_.state_dict()
    assert all(torch.equal(weights[name], one) for name, one in found.net_.state_dict().items())


def test_the_second_run_has_the_runtime_of_the_first():
    images, labels = _data()
    method = {**SHORT, "runtime": {"precision": "bf16"}}
    found = fit(_net(), images, labels, retrain=True, method=method)
    assert found._learner.config.runtime == found.method_.runtime
    assert found._learner.config.runtime.precision == "bf16"
    assert found.method_.optimiser.schedule == "constant"
    assert found._learner.config.optimiser.schedule == "cosine"


def test_a_mask_of_vectors_is_retrained():
    images, labels = _data()
    found = fit(_net(), images.reshape(60, 64), labels, tp.hypers.Mask(), retrain=True)
    assert found._learner.hypers.values()["hyper/keep.0"] == found.hypers_["keep.0"]


def test_hypers_have_held_values_too_so_that_a_config_can_take_them_over():
    images, labels = _data()
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 10)
    )
    found = fit(net, images, labels, ROTATION)
    assert found.hypers_["shear"] == 0.0
    assert found.hypers_["dropout.0"] == 0.4
    taken = found.method_.hypers.at(found.hypers_)
    assert taken.affine.rotation == found.hypers_["rotation"]


def test_predictions_are_made_in_batches(monkeypatch):
    images, labels = _data()
    found = fit(_net(), images, labels)
    whole = found.predict_proba(images)
    sizes, predict = [], found._learner.predict
    monkeypatch.setattr(type(found._learner), "scored_at_once", 25)
    found._learner.predict = lambda x, generator: sizes.append(len(x)) or predict(x, generator)
    np.testing.assert_allclose(found.predict_proba(images), whole, rtol=1e-5)
    assert sizes == [25, 25, 10]
    assert found.net_.training


def test_what_was_found_is_shown_in_a_line_a_table_and_a_picture():
    images, labels = _data()
    found = tp.PartitionedClassifier(
        _net(), [ROTATION, tp.hypers.Temperature()], steps=20, method=SHORT
    )
    assert repr(found).startswith("PartitionedClassifier(")
    assert "PartitionedClassifier" in found._repr_html_()
    found.fit(images, labels)
    text = repr(found)
    assert text.startswith("PartitionedClassifier(net Sequential, ")
    assert len(text) < 400
    assert f"rotation {found.hypers_['rotation']:.3g} rad" in text
    assert "nats" in text
    assert "<th" in found._repr_html_()
    assert "rotation" in found._repr_html_()
    lines = {line.name: line for line in found.plot().data}
    assert list(lines["rotation (rad)"].y) == [row["hyper/rotation"] for row in found.history_]
    assert list(lines["loss of weights"].x) == [10, 20]


def test_the_net_drops_out_again_where_it_did():
    images, labels = _data()

    def net():
        with seeding.isolated(0, "init"):
            return nn.Sequential(
                nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 10)
            )

    plain = fit(net(), images, labels).net_
    assert type(plain[3]) is nn.Dropout
    assert plain[3].p == 0.4
    x = torch.from_numpy(images)
    assert not torch.equal(plain.train()(x), plain(x))
    learnt = fit(net(), images, labels, tp.hypers.Dropout())
    assert learnt.net_[3].p == learnt.hypers_["dropout.0"]
    probabilities = learnt.net_.eval()(x)[:, :4].double().softmax(1).detach().numpy()
    np.testing.assert_allclose(learnt.predict_proba(x), probabilities, rtol=1e-12)


class _Tupled(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


class _Stopped(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


IMAGES, LABELS = np.zeros((12, 1, 8, 8), np.float32), np.arange(12) % 10
REFUSED = {
    "bytes": ({"inputs": IMAGES.astype(np.uint8)}, "`images / 255`"),
    "no channels": ({"inputs": IMAGES[:, 0], "hypers": tp.Affine()}, r"images \(C, H, W\)"),
    "few logits": ({"net": nn.Sequential(nn.Flatten(), nn.Linear(64, 3))}, "has 3 for 10"),
    "one class": ({"labels": LABELS * 0}, "one class"),
    "drawn again": ({"method": tp.Partitioned.published(defaults="seed")}, "drawn again"),
    "unknown field": ({"method": {"pases": 3}}, "pases"),
    "the net elsewhere": ({"method": tp.Partitioned(net=tp.nets.Mlp())}, "method.net: set it as"),
    "no steps": ({"steps": 0}, "steps"),
    "steps in words": ({"steps": "many"}, "steps"),
    "no hyper": ({"hypers": "rotation"}, "rotation"),
    "a mask of images": ({"hypers": tp.hypers.Mask(), "retrain": True}, "masks of images"),
    "mirrored vectors": (
        {"inputs": IMAGES.reshape(12, 64), "hypers": tp.hypers.Flip()},
        "`flip` acts on im",
    ),
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
    given = {"net": _net(), "inputs": IMAGES, "labels": LABELS, **fields}
    net = given["net"].eval()
    before, drawn = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with pytest.raises(TunepartsError, match=message):
        fit(**given)
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

    def fitted(**given):
        with seeding.isolated(0, "init"):
            return fit(kind(), images, labels, ROTATION, **given)

    found = fitted()
    assert all(torch.isfinite(p).all() for p in found.net_.parameters())
    assert fitted().history_ == found.history_
    if kind is _Tied:
        assert found.net_.second.weight is found.net_.first.weight
        joint = fitted(method={**SHORT, "scheme": "node", "hyper_share": 0.2})
        assert joint.method_.scheme == "node"


def test_pixels_that_were_not_scaled_are_told_and_no_hypers_may_be_none():
    images = np.random.default_rng(0).uniform(0, 255, (40, 1, 8, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.warns(UserWarning, match="these go up to 25"):
        found = fit(net, images, labels, None, steps=2)
    assert found.hypers_ == {}


def test_values_are_fitted_by_the_regressor_and_by_any_loss():
    x = torch.randn(60, 3, generator=seeding.torch_generator(0, "x"))
    y = x @ torch.tensor([[1.0, 0.5], [0.0, 1.0], [2.0, 0.0]])
    net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 2))
    found = tp.PartitionedRegressor(net, steps=300).fit(x, y)
    assert found.predict(x).shape == (60, 2)
    assert found.score(x, y) > 0.9
    assert "nats" not in repr(found)
    absolute = tp.PartitionedRegressor(net, steps=300, target=_absolute).fit(x, y)
    assert absolute._learner.context.task.target.function.endswith("_absolute")
    assert absolute.score(x, y) > 0.9
    one = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1))
    assert tp.PartitionedRegressor(one, steps=4).fit(x, y[:, 0]).predict(x).shape == (60,)


def _absolute(outputs, y):
    return (outputs - y).abs().mean(dim=1)


def test_the_estimator_is_imported_when_it_is_used_and_scikit_learn_with_it():
    code = """
import sys, tuneparts as tp
assert not {"sklearn", "torch"} & set(sys.modules)
tp.PartitionedClassifier
assert {"sklearn", "torch"} <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


NET = tp.nets.Mlp(widths=(32,))
KINDS = (tp.PartitionedClassifier, tp.PartitionedRegressor)
CHECKED = [kind(NET, steps=100, method={"interval": 100}) for kind in KINDS]


def _inexact(_estimator):
    """What one batch size and another give differs by 2e-7 here, and the check allows 1e-7."""
    return {"check_methods_subset_invariance": "nets compute in float32"}


@parametrize_with_checks(CHECKED, expected_failed_checks=_inexact)
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)
