"""Partitioned training as a whole: what each kind of step sees, moves and leaves alone."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts import nets
from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.data.config import Data
from tuneparts.data.task import Examples
from tuneparts.methods.partitioned import Partitioned
from tuneparts.methods.partitioned._assign import Role
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.methods.partitioned.steps import Evidence
from tuneparts.training import checkpoint
from tuneparts.training.config import Finetune
from tuneparts.training.learner import Context
from tuneparts.training.step import set_lr

SMALL = {"net": nets.DigitsCnn(channels=(4, 6), hidden=10), "batch_size": 8, "interval": 10}
LEARNT = {"affine": {"rotation": 0.3}, "temperature": 1.5, "samples": 2}
NETS = {
    "mlp": nets.Mlp(widths=(16, 12)),
    "digits_cnn": SMALL["net"],
    "mnist_cnn": nets.MnistCnn(channels=(6, 8), hidden=(12, 10)),
    "fixup_resnet": nets.FixupResNet(depth=8, planes=4),
    "wide_resnet": nets.WideResNet(depth=10, width=1),
    "resnet50_gn": nets.ResNet50Gn(num_per_stage=1),
    "resnet9": nets.ResNet9(width=4),
}


def _learner(task, *, seed=0, **fields):
    fields = {**PUBLISHED, **SMALL, "hypers": LEARNT, "proportions": (0.5, 0.3, 0.2), **fields}
    config = parse(Partitioned, fields)
    return config.build(Context(task=task, seed=seed, device=torch.device("cpu")))


def _weights(learner, *numbers):
    return [s.gather(s.flat_n).clone() for k in numbers for s in learner.parts.shares(k)]


def _scramble(learner, *numbers, seed=0):
    generator = seeding.torch_generator(seed, "noise")
    for k in numbers:
        for share in learner.parts.shares(k):
            share.scatter(torch.randn(share.gather(share.flat_n).shape, generator=generator))


def _hyper_gradient(learner, k, indices):
    """The gradient of one hyper step, with nothing left moved."""
    learner = copy.deepcopy(learner)
    learner._hyper_stream.next = lambda: (k, indices)
    learner.hyper_step()
    return [p.grad.clone() for p in learner._psi]


def _weight_gradient(learner, k, indices):
    learner = copy.deepcopy(learner)
    learner._weight_stream.next = lambda: (k, indices)
    found = []
    learner.optimiser.step = lambda _, grads, **__: found.extend(grads)
    learner.weight_step()
    return [s.gather(g) for s, g in zip(learner.parts.shares(k), found, strict=True)]


def _same(a, b):
    """Whether two trees of states hold the same bits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("net", ["digits_cnn", "wide_resnet", "fixup_resnet"])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_each_kind_of_step_leaves_the_other_side_alone(stripes, net, kind):
    learner = _learner(stripes, net=NETS[net], optimiser={"kind": kind, "weight_decay": 0.01})
    learner.step()
    sides = {
        "weights": ("parts", "optimiser"),
        "hypers": ("hypers", "hyper_optimiser"),
    }

    def snapshot():
        state = copy.deepcopy(learner.state_dict())
        return {side: [state[key] for key in keys] for side, keys in sides.items()}

    before = snapshot()
    learner.weight_step()
    between = snapshot()
    assert _same(between["hypers"], before["hypers"])
    assert not _same(between["weights"], before["weights"])
    learner.hyper_step()
    after = snapshot()
    assert _same(after["weights"], between["weights"])
    assert not _same(after["hypers"], between["hypers"])


@pytest.mark.parametrize("net", list(NETS))
def test_a_weight_step_moves_its_own_partition_only(stripes, net):
    learner = _learner(stripes, net=NETS[net], optimiser={"weight_decay": 0.01})
    for _ in range(6):
        before = {k: _weights(learner, k) for k in (1, 2, 3)}
        steps = dict(learner.optimiser.num_steps)
        learner.weight_step()
        (moved,) = [k for k in steps if learner.optimiser.num_steps[k] != steps[k]]
        for k in (1, 2, 3):
            unchanged = all(map(torch.equal, before[k], _weights(learner, k)))
            assert unchanged is (k != moved)


@pytest.mark.parametrize("net", ["digits_cnn", "wide_resnet", "fixup_resnet"])
@pytest.mark.parametrize("k", [2, 3])
def test_hyper_gradients_read_only_the_subnetwork_that_never_saw_the_chunk(stripes, net, k):
    learner = _learner(stripes, net=NETS[net])
    for _ in range(4):
        learner.step()
    _scramble(learner, 1)  # FixUp starts at logits that do not depend on anything
    indices = torch.from_numpy(learner.chunks.chunk(k).copy())
    before = _hyper_gradient(learner, k, indices)
    assert any(grad.any() for grad in before)
    _scramble(learner, *range(k, 4), seed=1)
    assert all(map(torch.equal, before, _hyper_gradient(learner, k, indices)))
    _scramble(learner, k - 1, seed=2)
    assert not all(map(torch.equal, before, _hyper_gradient(learner, k, indices)))


def _altered(task, indices):
    """The task with inputs and labels of some training examples changed."""
    joined = task.train.joined(task.val)
    inputs, labels = joined.inputs.copy(), joined.labels.copy()
    inputs[indices] = 255 - inputs[indices]
    labels[indices] = (labels[indices] + 1) % task.num_classes
    empty = joined.subset(np.arange(0))
    return dataclasses.replace(task, train=Examples(inputs, labels), val=empty)


def test_weights_of_a_partition_never_depend_on_later_chunks(stripes):
    learner = _learner(stripes, hypers={})
    for k in (1, 2):
        later = np.concatenate([learner.chunks.chunk(j) for j in range(k + 1, 4)])
        other = _learner(_altered(stripes, later), hypers={})
        indices = torch.from_numpy(learner.chunks.cumulative(k).copy())
        assert all(
            map(
                torch.equal,
                _weight_gradient(learner, k, indices),
                _weight_gradient(other, k, indices),
            )
        )
        everything = torch.arange(80)
        assert not all(
            map(
                torch.equal,
                _weight_gradient(learner, k, everything),
                _weight_gradient(other, k, everything),
            )
        )


def test_expected_gradients_are_those_of_the_objectives(stripes):
    learner = _learner(stripes, hypers={"temperature": 1.5})
    for _ in range(10):
        learner.step()
    sizes, num = learner.chunks.sizes, len(learner.train_data)

    # Equation 4: E over (k, example) of the hyper gradient is its gradient over N - N_1.
    expected = torch.zeros(())
    for k in (2, 3):
        for index in learner.chunks.chunk(k):
            odds = sizes[k - 1] / (num - sizes[0]) / sizes[k - 1]
            expected = expected + odds * _hyper_gradient(learner, k, torch.tensor([index]))[0]
    (log_temperature,) = learner.hypers.learnable()
    total = torch.zeros(())
    for k in (2, 3):
        x, y = learner.train_data.take(torch.from_numpy(learner.chunks.chunk(k).copy()))
        logits = learner.hypers.predict(
            learner.subnetwork(k - 1), x, generator=learner.generator("test"), training=True
        )
        total = total + nn.functional.cross_entropy(logits, y, reduction="sum")
    (gradient,) = torch.autograd.grad(total, [log_temperature])
    torch.testing.assert_close(expected, gradient / (num - sizes[0]), rtol=1e-4, atol=1e-7)

    # Equation 3 for the second partition: uniform over D_1:2.
    seen = learner.chunks.cumulative(2)
    singles = [_weight_gradient(learner, 2, torch.tensor([index])) for index in seen]
    means = [torch.stack(grads).mean(0) for grads in zip(*singles, strict=True)]
    whole = _weight_gradient(learner, 2, torch.from_numpy(seen.copy()))
    for a, b in zip(means, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("net", list(NETS))
@pytest.mark.parametrize(
    "optimiser",
    [
        {"kind": "adam", "weight_decay": 0.01},
        {"kind": "sgd", "lr": 0.05, "schedule": "cosine", "weight_decay": 0.01},
    ],
    ids=["adam", "sgd"],
)
def test_one_chunk_is_standard_training_bit_for_bit(stripes, net, optimiser):
    learner = _learner(
        stripes, net=NETS[net], proportions=(1.0,), optimiser=optimiser, steps=12, interval=12
    )
    metrics = learner.advance()
    assert "train/hyper_loss" not in metrics
    config = learner.config
    with seeding.isolated(0, "init"):
        twin = learner.laid_out(config.net.build(stripes.in_shape, stripes.num_classes))
    standard = config.optimiser.build(twin)
    hypers = config.hypers.build(learnable=False, net=twin, in_shape=stripes.in_shape)
    generator = seeding.torch_generator(0, "augment weight steps")
    batches = Batches(
        80, config.batch_size, seed=0, stream=("weight steps", "batch", 1), replacement=True
    )
    order = torch.from_numpy(learner.chunks.chunk(1).copy())
    for t in range(12):
        x, y = learner.train_data.take(order[batches.next()])
        loss = nn.functional.cross_entropy(
            hypers.predict(twin, x, generator=generator, training=True), y
        )
        set_lr(standard, config.optimiser.lr_at(t / 12))
        standard.zero_grad()
        loss.backward()
        standard.step()
    for name, tensor in learner.parts.merged().state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name


def test_all_weights_in_the_first_partition_is_validation_set_optimisation(stripes):
    fields = {
        "net": NETS["wide_resnet"],
        "proportions": (0.7, 0.3),
        "parameter_proportions": (1, 0),
        "steps": 20,
    }
    learner = _learner(stripes, **fields)
    twin = _learner(
        _altered(stripes, learner.chunks.chunk(2)),
        **fields,
    )
    history = [learner.advance(), learner.advance()]
    assert history[-1]["partition/steps.1"] == 10
    assert history[-1]["partition/steps.2"] == 0
    assert "train/hyper_loss" in history[0]
    x, _ = learner.train_data.take(torch.arange(8))
    learner.net.eval()
    full = learner.parts(x)
    assert torch.equal(learner.parts(x, 1), full)
    assert torch.equal(learner.parts.merged().eval()(x), full)
    # With the hypers held, nothing of D_2 reaches the weights.
    frozen = {**LEARNT, "frozen": ("affine", "temperature")}
    learner, twin = (
        _learner(task, **{**fields, "hypers": frozen})
        for task in (stripes, _altered(stripes, learner.chunks.chunk(2)))
    )
    learner.advance()
    twin.advance()
    assert _same(learner.parts.state_dict(), twin.parts.state_dict())


@pytest.mark.parametrize(("steps", "hyper"), [(11, 5), (12, 6), (1, 0)])
def test_steps_are_spent_to_the_last_and_never_beyond(stripes, steps, hyper):
    learner = _learner(stripes, steps=steps, interval=20)
    spent = []
    learner_hyper_step = learner.hyper_step
    learner.hyper_step = lambda: spent.append(1) or learner_hyper_step()
    metrics = learner.advance()
    assert learner.finished
    assert metrics["cost/steps"] == steps == sum(learner.optimiser.num_steps.values()) + hyper
    assert len(spent) == hyper


def test_hyper_steps_every_third_weight_step(stripes):
    learner = _learner(stripes, steps=16, interval=16, hyper_every=3)
    kinds = []
    for name in ("weight_step", "hyper_step"):
        step = getattr(learner, name)
        setattr(learner, name, lambda step=step, name=name: kinds.append(name[0]) or step())
    learner.advance()
    assert "".join(kinds) == "wwwh" * 4


def test_a_run_without_hypers_spends_all_steps_on_weights(stripes):
    metrics = _learner(stripes, hypers={}, steps=10).advance()
    assert sum(metrics[f"partition/steps.{k}"] for k in (1, 2, 3)) == 10
    assert "train/hyper_loss" not in metrics


FULL = [
    {},
    {"net": NETS["wide_resnet"]},
    {"net": NETS["fixup_resnet"], "defaults": "initial", "optimiser": {"kind": "sgd"}},
    {"defaults": "seed", "select_by_lml": True},
    {"scheme": "node", "mixed": True},
    {"scheme": "node", "mixed": True, "hyper_share": 0.2},
    {"num_extractor_layers": 1, "hyper_every": 2, "lml_every": 2},
    {"hypers": {**LEARNT, "dropout": {"rate": 0.2}}},
]


@pytest.mark.parametrize("fields", FULL, ids=lambda f: ", ".join(f) or "plain")
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(stripes, fields):
    fields = {"steps": 18, "interval": 5, **fields}
    whole, first, second = (_learner(stripes, **fields) for _ in range(3))
    expected = []
    while not whole.finished:
        expected.append(whole.advance())
    got = [first.advance(), first.advance()]
    content = checkpoint.to_bytes(first.state_dict())
    first.advance()  # must not reach into what was saved
    second.load_state_dict(checkpoint.from_bytes(content))
    while not second.finished:
        got.append(second.advance())
    assert got == expected
    assert _same(second.state_dict(), whole.state_dict())


def test_a_leak_would_show_in_the_last_term_only():
    task = Data(name="blobs", num_train=240, num_val=0, num_test=20).load()
    fields = {
        "net": NETS["mlp"],
        "hypers": {"temperature": 1.0, "frozen": ("temperature",)},
        "proportions": (0.5, 0.25, 0.25),
        "optimiser": {"lr": 0.01},
        "steps": 150,
        "interval": 150,
    }
    learner = _learner(task, **fields)
    last = learner.chunks.chunk(3)
    labels = task.train.labels.copy()
    labels[last] = np.random.default_rng(0).integers(0, 3, len(last))
    canary = _learner(
        dataclasses.replace(task, train=Examples(task.train.inputs, labels)), **fields
    )
    clean, noisy = learner.advance(), canary.advance()
    assert all(map(torch.equal, _weights(learner, 1, 2), _weights(canary, 1, 2)))
    assert not all(map(torch.equal, _weights(learner, 3), _weights(canary, 3)))
    assert clean["lml/term.2"] == noisy["lml/term.2"]
    assert clean["lml/term.3"] > -0.5
    assert noisy["lml/term.3"] < -math.log(3)


def test_freezing_the_hypers_shifts_no_draw_of_the_weights(stripes):
    free = _learner(stripes, hyper_lr=1e-12)
    frozen = _learner(stripes, hypers={**LEARNT, "frozen": ("affine", "temperature")})
    streams = []
    for learner in (free, frozen):
        for _ in range(6):
            learner.step()
        streams.append(
            (learner._weight_stream.state_dict(), learner._weight_augmentation.get_state())
        )
    assert _same(*streams)


@pytest.mark.parametrize("best", [0, 2, 4])
def test_the_state_with_the_largest_evidence_is_kept(stripes, best):
    fields = {"steps": 50, "interval": 10}
    plain, selecting = _learner(stripes, **fields), _learner(stripes, **fields, select_by_lml=True)
    totals = [-9.0 - i for i in range(5)]
    totals[best] = -1.0
    given = iter(totals)
    selecting.evidence = lambda: Evidence({2: next(given)}, {2: 1})
    states, rows = [], []
    for _ in range(5):
        plain.advance()
        states.append(copy.deepcopy([plain.parts.state_dict(), plain.hypers.state_dict()]))
        rows.append(selecting.advance())
    assert [row["lml/total"] for row in rows] == [*totals[:-1], -1.0]
    assert _same(selecting.parts.state_dict(), states[best][0])
    assert _same(selecting.hypers.state_dict(), states[best][1])
    assert (rows[-1]["hyper/rotation"] == plain.hypers.values()["hyper/rotation"]) is (best == 4)


def test_evidence_is_reported_at_chosen_intervals_and_at_the_end(stripes):
    learner = _learner(stripes, steps=50, lml_every=2)
    rows = [learner.advance() for _ in range(5)]
    assert ["lml/total" in row for row in rows] == [False, True, False, True, True]
    assert {"lml/term.2", "lml/term.3", "hyper/rotation"} <= rows[-1].keys()


@pytest.mark.parametrize("fields", [{}, {"scheme": "node", "mixed": True, "hyper_share": 0.2}])
def test_every_subnetwork_is_scored_on_test_data_at_the_end(stripes, fields):
    learner = _learner(stripes, steps=20, **fields)
    rows = [learner.advance() for _ in range(2)]
    assert not any(name.startswith("subnetwork/") for name in rows[0])
    names = {name for name in rows[1] if name.startswith("subnetwork/")}
    assert names == {f"subnetwork/{s}.{k}" for s in ("accuracy", "nll") for k in (1, 2, 3, "mean")}
    assert rows[1]["subnetwork/accuracy.3"] == rows[1]["test/accuracy"]
    assert rows[1]["subnetwork/nll.3"] == rows[1]["test/nll"]
    x, y = learner._test.take(torch.arange(len(learner._test)))
    x = learner.hypers.affine(x, 2, learner.generator("evaluate test"))
    logits = learner.parts(x, level=1).view(len(y), 2, -1).mean(1)
    assert rows[1]["subnetwork/accuracy.1"] == pytest.approx(
        (logits.argmax(1) == y).double().mean().item()
    )


def test_updates_are_counted_beside_steps(stripes):
    joint = {"scheme": "node", "mixed": True, "hyper_share": 0.2}
    for fields, expected in (({}, 5), ({"hyper_every": 4}, 8), (joint, 10)):
        row = _learner(stripes, steps=10, **fields).advance()
        assert row["cost/steps"] == 10
        assert row["cost/updates"] == expected


def test_a_feature_extractor_is_learnt_by_hyper_steps_only(stripes):
    learner = _learner(stripes, num_extractor_layers=1, hypers={})
    held = learner.parts.held()
    assert [n for n, role in learner.parts.roles.items() if role is Role.HELD] == [
        "conv1.weight",
        "conv1.bias",
    ]
    before = [p.detach().clone() for p in held]
    learner.weight_step()
    assert all(map(torch.equal, before, held))
    learner.hyper_step()
    assert not any(map(torch.equal, before, held))


@pytest.mark.parametrize("net", ["mlp", "digits_cnn", "fixup_resnet", "resnet50_gn"])
def test_a_mixed_step_moves_each_partition_by_its_own_mean_loss(stripes, net):
    fields = {"net": NETS[net], "scheme": "node", "mixed": True, "batch_size": 24}
    learner = _learner(stripes, optimiser={"kind": "sgd", "momentum": 0.0}, **fields)
    _scramble(learner, 1)
    twin = copy.deepcopy(learner)
    learner.weight_step()
    levels, indices = twin._weight_stream.next_mixed()
    x, y = twin.train_data.take(indices)
    x = twin.hypers.affine(x, 2, twin._weight_augmentation)
    start = {k: _weights(twin, k) for k in (1, 2, 3)}
    for k in sorted(set(levels.tolist())):
        rows = levels == k
        view = twin.parts.view(k, trainable=True)
        logits = twin.parts.run(view, x[rows.repeat_interleave(2)]).view(int(rows.sum()), 2, -1)
        loss = nn.functional.cross_entropy(logits.mean(1) / 1.5, y[rows])
        grads = torch.autograd.grad(loss, view.leaves)
        rates = [
            1e-3
            * (0.1 if share.name.endswith("scale") or "bias" in share.name.split(".")[-2] else 1)
            for share in twin.parts.shares(k)
        ]
        moved = zip(twin.parts.shares(k), start[k], grads, rates, _weights(learner, k), strict=True)
        for share, old, grad, rate, new in moved:
            torch.testing.assert_close(new - old, -rate * share.gather(grad), rtol=2e-3, atol=2e-6)
    assert learner.optimiser.num_steps == {k: int((levels == k).any()) for k in (1, 2, 3)}


JOINT_FORMS = {
    "random": {},
    "node": {"scheme": "node"},
    "mixed": {"scheme": "node", "mixed": True},
    "extractor": {"num_extractor_layers": 1, "scheme": "node", "mixed": True},
}


@pytest.mark.parametrize("form", JOINT_FORMS)
def test_a_joint_step_is_a_weight_step_and_a_hyper_step_at_the_same_point(stripes, in_double, form):
    fields = {**JOINT_FORMS[form], "batch_size": 24, "hyper_share": 0.25}
    learner = _learner(stripes, optimiser={"kind": "sgd", "momentum": 0.0}, **fields)
    _scramble(learner, 1)
    twin = copy.deepcopy(in_double(learner))
    learner.joint_step()
    mixed, temperature = learner.config.mixed, twin.hypers.temperature.tensor("value")

    def drawn(stream):
        if mixed:
            numbers, indices = stream.next_mixed()
        else:
            k, indices = stream.next()
            numbers = torch.full((len(indices),), k)
        return numbers, twin.train_data.take(indices)

    def logits(level, x, rows):
        view = twin.parts.view(level, trainable=False)
        found = twin.parts.run(view, x[rows.repeat_interleave(2)])
        return found.view(int(rows.sum()), 2, -1).mean(1) / temperature

    numbers, (x, y) = drawn(twin._hyper_stream)
    assert len(x) == 6
    x = twin.hypers.affine(x, 2, twin._hyper_augmentation)
    loss = sum(
        nn.functional.cross_entropy(
            logits(k - 1, x, numbers == k), y[numbers == k], reduction="sum"
        )
        for k in set(numbers.tolist())
    )
    expected = torch.autograd.grad(loss / len(y), twin._psi)
    for parameter, one in zip(learner._psi, expected, strict=True):
        torch.testing.assert_close(parameter.grad, one, rtol=1e-10, atol=1e-13)

    numbers, (x, y) = drawn(twin._weight_stream)
    assert len(x) == 18
    x = twin.hypers.affine(x, 2, twin._weight_augmentation).detach()
    start = {k: _weights(twin, k) for k in (1, 2, 3)}
    for k in (1, 2, 3):
        rows = numbers == k
        change = [new - old for new, old in zip(_weights(learner, k), start[k], strict=True)]
        if not rows.any():
            assert not any(one.any() for one in change)
            continue
        view = twin.parts.view(k, trainable=True)
        found = twin.parts.run(view, x[rows.repeat_interleave(2)]).view(int(rows.sum()), 2, -1)
        loss = nn.functional.cross_entropy(found.mean(1) / temperature.detach(), y[rows])
        grads = torch.autograd.grad(loss, view.leaves)
        for share, grad, moved in zip(twin.parts.shares(k), grads, change, strict=True):
            torch.testing.assert_close(moved, -1e-3 * share.gather(grad), rtol=1e-8, atol=1e-13)
    assert learner._num_updates == 1


@pytest.mark.parametrize("form", JOINT_FORMS)
def test_the_hyper_share_of_a_joint_batch_moves_no_weight(stripes, form):
    fields = {**JOINT_FORMS[form], "batch_size": 24, "hyper_share": 0.25}
    one, other = (_learner(stripes, **fields) for _ in range(2))
    wrong = other._hyper_stream
    for k in wrong._sources:  # the hypers are judged by other examples
        wrong._sources[k] = wrong._sources[k].flip(0)
    for learner in (one, other):
        learner.joint_step()
    assert all(map(torch.equal, _weights(one, 1, 2, 3), _weights(other, 1, 2, 3)))
    assert not all(map(torch.equal, one._psi, other._psi))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"proportions": (0.0, 1.0)}, "partition 1"),
        ({"proportions": (1.0,) * 256}, "1 to 255"),
        ({"parameter_proportions": (0.5, 0.5)}, "equally many"),
        (
            {"proportions": (0.8, 0.2, 0.0), "parameter_proportions": (0.5, 0.2, 0.3)},
            "partition 3 has 0.3 of the weights, chunk 3 no data",
        ),
        ({"mixed": True}, "set `scheme` to `node`"),
        ({"hyper_share": 0.2, "hyper_every": 2}, "in every step"),
        ({"hyper_share": 0.2, "batch_size": 1}, "needs 2 examples"),
        ({"scheme": "node", "defaults": "initial"}, "zero defaults"),
        ({"hypers": {"weight_decay": 0.1}}, "does not enter"),
        ({"hypers": {"label_smoothing": 0.1}}, "does not enter"),
        ({"hyper_rate": 0.1}, "hyper_lr|hyper_every"),
    ],
)
def test_configs_that_cannot_be_meant_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        parse(Partitioned, {**PUBLISHED, **fields})


def test_the_default_is_the_strongest_form_and_published_that_of_the_paper():
    strongest, published = Partitioned(steps=100), Partitioned.published(steps=100)
    assert strongest.owned == pytest.approx((0.94, 0.03, 0.03))
    assert Partitioned(proportions=(1.0,)).owned == (1.0,)
    assert (strongest.scheme, strongest.mixed, strongest.hyper_share) == ("node", True, 0.2)
    assert strongest.finetune == Finetune()
    assert published.owned == published.proportions
    assert (published.scheme, published.mixed, published.hyper_share) == ("random", False, 0)
    assert published.finetune is None
    assert Partitioned.published(scheme="node").scheme == "node"


def test_a_config_survives_json():
    config = Partitioned(proportions=(0.9, 0.1), scheme="node", mixed=True, hyper_lr=0.1)
    assert Partitioned.model_validate_json(config.model_dump_json()) == config


def test_weight_decay_is_scaled_as_the_config_says(stripes):
    factors = _learner(stripes, weight_decay_scaling="sqrt").optimiser._decay_factors
    assert factors == pytest.approx((2**0.5, 1.25**0.5, 1))
