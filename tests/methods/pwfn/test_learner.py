"""The learner: stages, rounds, resuming anywhere, and what each config field changes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Examples, Task
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.pwfn import codefile
from tuneparts.methods.pwfn._learner import PwfnLearner
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

CPU = torch.device("cpu")
QUANTISERS: list[dict[str, Any]] = [
    {"kind": "clusters"},
    {"kind": "clusters", "rule": "running_mean", "monotone": True},
    {"kind": "clusters", "distance": "relative", "delta": 0.01},
    {"kind": "nearest"},
    {"kind": "nearest", "max_order": 1},
    {"kind": "kmeans", "num_values": 16},
    {"kind": "wfn"},
]


def blobs(num: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    labels = np.arange(num) % 3
    images = rng.normal(100, 30, size=(num, 1, 6, 6))
    images[np.arange(num), 0, labels * 2] += 120
    return Examples(images.clip(0, 255).astype(np.uint8), labels.astype(np.int64))


@pytest.fixture(scope="module")
def task() -> Task:
    return Task("blobs", blobs(96, 0), blobs(30, 1), blobs(30, 2), 3, (0.4,), (0.2,))


def config(**changes: Any) -> Pwfn:
    base = {
        "steps": 24,
        "interval": 5,
        "batch_size": 16,
        "net": {"name": "resnet18", "width": 2},
        "fractions": (0.3, 0.8, 1.0),
        "first_round": 0.5,
    }
    return parse(Pwfn, base | changes)


def build(task: Task, seed: int = 0, **changes: Any) -> PwfnLearner:
    learner = config(**changes).build(Context(task=task, seed=seed, device=CPU))
    assert isinstance(learner, PwfnLearner)
    return learner


def finish(learner: PwfnLearner) -> list[Mapping[str, float]]:
    reports = []
    while not learner.finished:
        reports.append(learner.advance())
    return reports


def to_first_round(learner: PwfnLearner) -> None:
    while learner._num_rounds_done < 1:
        learner.advance()


def mlp(**changes: Any) -> dict[str, Any]:
    return {"net": {"name": "mlp", "widths": (16,)}} | changes


@pytest.mark.parametrize("quantiser", QUANTISERS, ids=str)
def test_all_weights_are_fixed_at_the_end(task: Task, quantiser: dict[str, Any]) -> None:
    learner = build(task, **mlp(quantiser=quantiser))
    reports = finish(learner)
    for name in {name for report in reports for name in report}:
        schema.lookup(name)
    last = reports[-1]
    assert last["fixing/fraction"] == 1
    assert last["fixing/rounds"] == 3
    assert last["size/unique_weights"] < learner.config.net.widths[0] * 36  # type: ignore[union-attr]
    assert bool(learner.gaussians.fixed.all())
    if quantiser["kind"] in {"clusters", "nearest"}:
        integers = learner.gaussians.means().double() * 128
        assert torch.equal(integers, integers.round())
        set_bits = [int(abs(n)).bit_count() for n in integers.tolist()]
        assert max(set_bits) <= quantiser.get("max_order", 4)
    if quantiser["kind"] == "kmeans":
        assert last["size/unique_weights"] <= 16


@pytest.mark.parametrize(("bits", "aware"), [(8, False), (4, True)])
def test_integers_with_a_scale_per_channel(task: Task, bits: int, aware: bool) -> None:
    quantiser = {"kind": "uniform", "bits": bits, "aware": aware}
    learner = build(task, **mlp(quantiser=quantiser, fractions=(1.0,)))
    last = finish(learner)[-1]
    assert last["fixing/fraction"] == 1
    assert last["size/unique_weights"] <= 255
    num, plain = len(learner.gaussians.sigma), codefile._num_plain_bytes(learner.net)
    assert num * last["size/entropy"] / 8 < last["size/coded_bytes"] < plain


def test_quantisation_aware_training_moves_the_weights_behind_the_rounded_ones(task: Task) -> None:
    changes = mlp(interval=1, fractions=(1.0,), clip=1e9)
    aware = build(task, **changes, quantiser={"kind": "uniform", "bits": 2, "aware": True})
    after = build(task, **changes, quantiser={"kind": "uniform", "bits": 2})
    while aware.steps < aware.rounds.pretrain_end:
        assert aware.advance()["train/loss"] == after.advance()["train/loss"]
    start, learning = aware.gaussians.means(), aware.gaussians
    first = aware.advance()["train/loss"]
    assert first != after.advance()["train/loss"]  # the loss is that of rounded weights
    moved = learning.means() != start
    assert moved.any()
    assert not learning.fixed.any()


def test_without_fixing_the_schedule_is_the_same_and_the_net_an_ordinary_one(task: Task) -> None:
    learner = build(task, **mlp(quantiser={"kind": "free"}))
    last = finish(learner)[-1]
    assert last["fixing/fraction"] == 0
    assert last["fixing/rounds"] == 3
    assert last["size/coded_bytes"] == codefile._num_plain_bytes(learner.net)
    names = learner.final_module().state_dict()
    assert not any("sigma" in name or "fixed" in name for name in names)


Undisturbed = tuple[PwfnLearner, list[bytes], list[Mapping[str, float]]]
RESUMED = {"interval": 1, "recalibrate": 2, "ensemble": 2}


@pytest.fixture(scope="module")
def undisturbed(task: Task) -> Undisturbed:
    """A finished learner, its state after each pass, and its reports."""
    learner = build(task, **RESUMED)
    assert learner.rounds.pretrain_end == 12
    assert learner.rounds.ends == (14, 19, 24)
    states, reports = [], []
    while not learner.finished:
        reports.append(learner.advance())
        states.append(checkpoint.to_bytes(learner.state_dict()))
    return learner, states, reports


@pytest.mark.parametrize("stop", [3, 12, 14, 17, 21])
def test_resuming_is_bit_for_bit(task: Task, undisturbed: Undisturbed, stop: int) -> None:
    whole, states, reports = undisturbed
    learner = build(task, **RESUMED)
    learner.load_state_dict(checkpoint.from_bytes(states[stop - 1]))
    assert finish(learner) == reports[stop:]
    own, other = learner.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(own[name], other[name]) for name in other)


def test_pretraining_is_standard_training(task: Task) -> None:
    common = {"batch_size": 16, "net": {"name": "resnet18", "width": 2}, "interval": 4}
    standard = parse(Standard, common | {"steps": 12}).build(Context(task=task, seed=3, device=CPU))
    learner = build(task, seed=3, steps=24, interval=4, first_round=1.0)
    for _ in range(2):
        expected, got = standard.advance(), learner.advance()
        assert got["train/loss"] == expected["train/loss"]
        assert got["val/nll"] == expected["val/nll"]


def test_starting_from_a_checkpoint(task: Task, tmp_path: Path) -> None:
    context = Context(task=task, seed=0, device=CPU)
    changes = {"batch_size": 16, "steps": 4, "interval": 4, "net": "mlp"}
    standard = parse(Standard, changes).build(context)
    standard.advance()
    checkpoint.save(tmp_path / "net", standard.state_dict())
    given = {"pretrained": str(tmp_path / "net"), "pretrain": 0}
    found = build(task, net="mlp", **given).net.state_dict()
    for name, value in standard.state_dict()["net"].items():
        assert torch.equal(found[name], value)


def test_warm_up_moves_deviations_only(task: Task) -> None:
    learner = build(task, pretrain=0.25, warmup=0.25, interval=1, sigma={"alpha": 1.0})
    while learner.steps < learner.rounds.pretrain_end:
        learner.advance()
    assert learner.rounds.warmup_end - learner.rounds.pretrain_end == 6
    parameters = {name: p.detach().clone() for name, p in learner.net.named_parameters()}
    start = learner.gaussians.sigma.detach().clone()
    for _ in range(6):
        learner.advance()
    for name, parameter in learner.net.named_parameters():
        assert torch.equal(parameter, parameters[name]), name
    moved = learner.gaussians.parts(learner.gaussians.sigma.detach() != start)
    assert all(part.any() for name, part in moved.items() if name.endswith("weight"))


def test_trials_of_a_seed_share_their_pretraining(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEPARTS_CACHE", str(tmp_path))
    changes = mlp(interval=4, augmentation={"crop_padding": 1})
    alone = finish(build(task, **changes))
    first = finish(build(task, **changes, shares_pretraining=True))
    files = list((tmp_path / "pretrained").glob("*.pt"))
    assert len(files) == 1
    second = finish(build(task, **changes, shares_pretraining=True))
    assert first == second
    # The first row is all of the pretraining; what follows is as without sharing.
    assert first[0]["cost/steps"] == 12
    assert first[1:] == alone[3:]
    files[0].write_bytes(files[0].read_bytes()[:-3])  # a damaged one is made anew
    assert finish(build(task, **changes, shares_pretraining=True)) == first
    finish(build(task, **changes, shares_pretraining=True, sigma={"alpha": 0.5}))
    assert list((tmp_path / "pretrained").glob("*.pt")) == files
    finish(build(task, seed=1, **changes, shares_pretraining=True))
    finish(build(task, **changes, shares_pretraining=True, optimiser={"lr": 0.1}))
    assert len(list((tmp_path / "pretrained").glob("*.pt"))) == 3


def test_an_exposure_decides_alpha_whatever_the_length(task: Task) -> None:
    for steps in (16, 24):
        last = finish(build(task, **mlp(steps=steps, sigma={"exposure": 0.7})))[-1]
        assert last["fixing/exposure"] == pytest.approx(0.7)
        assert last["fixing/spread"] >= 1


@pytest.mark.parametrize("habits", ["careful", "released"])
def test_only_released_habits_move_what_is_fixed_until_the_next_round(
    task: Task, habits: str
) -> None:
    finetune = {"kind": "sgd", "lr": 0.1, "weight_decay": 0.1}
    changes = {"interval": 1, "habits": habits, "sigma": {"alpha": 1.0}, "finetune": finetune}
    learner = build(task, **mlp(**changes))
    to_first_round(learner)
    fixed_N, sigma_N = learner.gaussians.fixed.clone(), learner.gaussians.sigma.detach().clone()
    mu_N = learner.gaussians.means()
    learner.advance()
    moved, wider = learner.gaussians.means() != mu_N, learner.gaussians.sigma != sigma_N
    assert moved[~fixed_N].any()
    assert moved[fixed_N & (mu_N != 0)].all() == (habits == "released")
    assert wider[fixed_N].any() == moved[fixed_N].any() == (habits == "released")
    finish(learner)
    integers = learner.gaussians.means().double() * 128
    assert torch.equal(integers, integers.round())


CHANGES: list[dict[str, Any]] = [
    {"augmentation": {"crop_padding": 1}},
    {"pretrain": 0.25},
    {"warmup": 0.2},
    {"fractions": (0.5, 1.0)},
    {"first_round": 2.0},
    {"quantiser": {"kind": "clusters", "bits": 5}},
    {"quantiser": {"kind": "clusters", "max_order": 1}},
    {"quantiser": {"kind": "clusters", "delta": 8.0}},
    {"quantiser": {"kind": "clusters", "growth": 4.0}},
    {"quantiser": {"kind": "clusters", "zero_rule": False}},
    {"quantiser": {"kind": "clusters", "monotone": True}},
    {"quantiser": {"kind": "clusters", "monotone": True, "rule": "running_mean"}},
    {"quantiser": {"kind": "clusters", "distance": "relative", "delta": 0.5}},
    {"sigma": {"start": "upper"}},
    {"sigma": {"start": 0.01}},
    {"sigma": {"alpha": 0.0}},
    {"sigma": {"cutoff": 0.2}},
    {"sigma": {"form": "hinge"}},
    {"sigma": {"control": "permuted"}},
    {"sigma": {"control": "constant"}},
    {"finetune": {"kind": "sgd", "lr": 0.01}},
    {"clip": 0.01},
    {"recalibrate": 3},
    {"ensemble": 2},
    {"habits": "released"},
]


def last_report(task: Task, changes: dict[str, Any]) -> dict[str, float]:
    """What a small net reports at the end, but for numbers that follow from the config alone."""
    sigma = {"alpha": 0.5} | changes.get("sigma", {})
    # Only a net with BatchNorm can be recalibrated; the other is far faster.
    small = {"name": "mlp", "widths": (16,)}
    net = {"name": "resnet18", "width": 1} if "recalibrate" in changes else small
    report = finish(build(task, **({"steps": 16, "net": net} | changes | {"sigma": sigma})))[-1]
    return {k: v for k, v in report.items() if k not in {"fixing/exposure", "fixing/rounds"}}


@pytest.fixture(scope="module")
def usual_report(task: Task) -> Mapping[str, float]:
    return last_report(task, {})


@pytest.mark.parametrize("change", CHANGES, ids=json.dumps)
def test_every_field_matters(
    task: Task, usual_report: Mapping[str, float], change: dict[str, Any]
) -> None:
    usual = last_report(task, {"recalibrate": 0}) if "recalibrate" in change else usual_report
    assert last_report(task, change) != usual


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fractions": (0.5, 0.4, 1.0)}, "rise"),
        ({"fractions": (0.5,)}, "exactly 1"),
        ({"pretrain": 0.5, "warmup": 0.5}, "rounds have steps"),
        ({"pretrained": "somewhere"}, "set `pretrain` to 0"),
        ({"sigma": {"alpha": 0.1, "exposure": 1.0}}, "give one of them"),
        ({"sigma": {"exposure": 1.0}, "finetune": {"kind": "adam"}}, "is defined for SGD"),
        ({"quantiser": {"kind": "nearest"}, "sigma": {"alpha": 0.1}}, "no standard deviations"),
        ({"quantiser": {"kind": "clusters", "distance": "relative"}}, "delta < 1"),
        ({"quantiser": {"kind": "clusters", "rule": "running_mean"}}, "monotone"),
        ({"quantiser": {"kind": "clusters", "growth": 1.0}}, "greater than 1"),
        ({"quantiser": {"kind": "uniform"}}, "rounds all weights at once"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_rounds_without_steps_of_their_own(task: Task) -> None:
    changes = mlp(steps=4, interval=4, pretrain=0.75, fractions=(0.2, 0.4, 0.7, 1.0))
    report = finish(build(task, **changes))[-1]
    assert report["fixing/rounds"] == 4
    assert report["fixing/fraction"] == 1


def test_wfn_draws_free_weights_to_what_is_fixed(task: Task) -> None:
    """The whole update against plain SGD on the loss with its term, written out."""
    changes = {"interval": 1, "clip": 1e9, "finetune": {"kind": "sgd", "lr": 0.01, "momentum": 0}}
    learner = build(task, **mlp(quantiser={"kind": "wfn"}, **changes))
    plain = build(task, **mlp(quantiser={"kind": "wfn", "ratio": 0}, **changes))
    to_first_round(learner)
    plain.load_state_dict(learner.state_dict())
    before, fixed_N = learner.gaussians.means(), learner.gaussians.fixed.clone()
    loss = learner.advance()["train/loss"]
    plain.advance()

    free_R = before[~fixed_N].double().requires_grad_()
    centres_K = before[fixed_N].unique().double()
    large = free_R.detach().abs() >= 2.0**-7
    distance_RK = (free_R[:, None] - centres_K).abs() / free_R.abs()[:, None]
    share_RK = torch.softmax(-distance_RK[large] / 0.05, dim=1)
    term = (share_RK * distance_RK[large]).sum() / len(free_R)
    torch.autograd.backward(term)
    assert free_R.grad is not None
    expected = torch.where(large, -0.01 * free_R.grad * (0.4 * loss / term.detach()), 0.0)

    drawn = learner.gaussians.means().double() - plain.gaussians.means().double()
    assert not drawn[fixed_N].any()
    torch.testing.assert_close(drawn[~fixed_N], expected, rtol=1e-3, atol=1e-7)
    assert drawn.any()


@pytest.mark.parametrize("kind", ["clusters", "wfn"])
def test_resuming_keeps_weights_and_what_is_shown_of_them(task: Task, kind: str) -> None:
    whole, resumed = (build(task, **mlp(quantiser={"kind": kind}, interval=1)) for _ in range(2))
    to_first_round(whole)
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(whole.state_dict())))
    assert finish(resumed) == finish(whole)
    assert torch.equal(resumed.gaussians.means(), whole.gaussians.means())
    assert resumed.artifacts() == whole.artifacts()
    assert bool(whole.artifacts()) == (kind == "clusters")
    if kind == "clusters":
        shown = whole.artifacts()["deviations"]
        assert set(shown["moment"]) == {"at the start", "at the end"}
        ends = {mu for mu, when in zip(shown["mu"], shown["moment"], strict=True) if "end" in when}
        assert ends <= set(whole.gaussians.means().tolist())


def test_without_validation_data(task: Task) -> None:
    report = finish(build(task, **mlp(train_on="all")))[-1]
    assert "fixing/accuracy_before" not in report
    assert "test/accuracy" in report
