"""Packs of learners: each lane trains as its learner would alone."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.measure import noise_context
from tuneparts.baselines.augerino import AugerinoConfig
from tuneparts.baselines.standard import StandardConfig
from tuneparts.baselines.validation import ValidationConfig
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.errors import ConfigError, DivergedError
from tuneparts.partition.learner import PartitionedConfig
from tuneparts.partition.released import ReleasedConfig
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context, Learner

AFFINE = [{"affine": {"kind": "lila", "rotation": r}, "samples": 2} for r in (0.1, 0.7, 2.0)]
RATES = [{"lr": 1e-2}, {"lr": 3e-3, "weight_decay": 0.1}, {"lr": 1e-3, "schedule": "cosine"}]
CNN = {"name": "digits_cnn", "channels": (3, 4), "hidden": 5}


@pytest.fixture
def _double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Learners in float64: nets by torch's default, and their data."""
    normalised = DeviceExamples._normalised
    monkeypatch.setattr(
        DeviceExamples, "_normalised", lambda self, raw: normalised(self, raw).double()
    )
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def context() -> Context:
    import numpy as np

    made = noise_context(120, (1, 8, 8), mean=0.5, std=0.3)
    parts = {"train": (0, 80), "val": (80, 100), "test": (100, 120)}
    task = dataclasses.replace(
        made.task,
        **{name: made.task.train.subset(np.arange(*ends)) for name, ends in parts.items()},
    )
    return dataclasses.replace(made, task=task)


def configs(
    method: type = StandardConfig, *, hypers: Sequence[Any] = ({},) * 3, **fields: Any
) -> list[Any]:
    values = {"net": CNN, "batch_size": 8, "passes": 6, "interval": 3, **fields}
    rates = values.pop("optimiser", RATES)
    return [
        method(hypers=one, optimiser=rate, **values)
        for one, rate in zip(hypers, rates, strict=True)
    ]


def far(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    assert one.keys() == other.keys()
    return max(abs(one[name] - other[name]) for name in one)


MIXED = [
    {
        "affine": {"kind": "benton", "rotation": 0.2 * lane},
        "dropout": {"rate": 0.1 * lane},
        "noise": 0.1 * lane,
        "temperature": 1 + 0.1 * lane,
        "smoothing": {"kind": "label_smoothing", "rate": 0.1 * lane},
        "decay": {"kind": "weight_decay", "strength": 0.1 * lane},
        "samples": 2,
    }
    for lane in (1, 2, 3)
]
SGD = [{"kind": "sgd", "lr": lr, "nesterov": True, "weight_decay": 0.01} for lr in (0.1, 0.05, 0.2)]
MLP = {"name": "mlp", "widths": (6,)}
FIXUP = {"name": "fixup_resnet", "planes": 4}
NORMED = {"name": "tests.training.packed.test_pack:normed"}
GROUPED = {"name": "tests.training.packed.test_pack:grouped"}
KEPT = {"train_on": "train"}
BY_NODES = {"scheme": "node", "mixed": True, "proportions": (0.4, 0.3, 0.3), **KEPT}


def normed(in_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return _convolutional(in_shape, num_outputs, nn.BatchNorm2d(4))


def grouped(in_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return _convolutional(in_shape, num_outputs, nn.GroupNorm(2, 4))


def _convolutional(in_shape: tuple[int, ...], num_outputs: int, norm: nn.Module) -> nn.Module:
    first = nn.Conv2d(in_shape[0], 4, 3, padding=1)
    pooled = nn.MaxPool2d(4)
    return nn.Sequential(first, norm, nn.ReLU(), pooled, nn.Flatten(), nn.Linear(16, num_outputs))


CASES: dict[str, dict[str, Any]] = {
    "plain": {"net": MLP},
    "affine": {"hypers": AFFINE},
    "sgd": {"hypers": AFFINE, "optimiser": SGD, "augmentation": {"flip": True, "crop_padding": 1}},
    "everything": {"hypers": MIXED},
    "masks": {"net": MLP, "hypers": [{"mask": {"keep": k}} for k in (0.3, 0.5, 0.9)]},
    "schwoebel": {"hypers": [{"affine": {"kind": "schwoebel"}}] * 3},
    "dropout": {"hypers": [{"dropout": {"rate": r}, "samples": 2} for r in (0.2, 0.3, 0.4)]},
    "fixup": {"net": {"name": "fixup_resnet", "planes": 2}, "optimiser": SGD},
    "augerino": {"method": AugerinoConfig, "hypers": AFFINE, "train_on": "train"},
    "validation": {"method": ValidationConfig, "hypers": AFFINE, "train_on": "train"},
    "finetuning": {"method": ValidationConfig, "hypers": AFFINE, "finetune": {}, **KEPT},
    "partitioned": {"method": PartitionedConfig, "hypers": AFFINE, **KEPT},
    "partitioned sgd": {"method": PartitionedConfig, "net": FIXUP, "optimiser": SGD, **KEPT},
    "initial": {"method": PartitionedConfig, "net": FIXUP, "defaults": "initial", **KEPT},
    "seed": {"method": PartitionedConfig, "net": FIXUP, "defaults": "seed", **KEPT},
    "masks in partitions": {
        "method": PartitionedConfig,
        "net": MLP,
        "hypers": [{"mask": {"keep": k}, "dropout": None} for k in (0.3, 0.5, 0.9)],
        **BY_NODES,
        "mixed": False,
    },
    "extractor": {
        "method": PartitionedConfig,
        "hypers": AFFINE,
        "num_extractor_layers": 1,
        "hyper_every": 2,
        **KEPT,
    },
    "statistics": {"method": PartitionedConfig, "hypers": AFFINE, "net": NORMED, **KEPT},
    "joint": {"method": PartitionedConfig, "hypers": AFFINE, "hyper_share": 0.3, **KEPT},
    "selected": {"method": PartitionedConfig, "hypers": AFFINE, "select_by_lml": True, **KEPT},
    "mixed": {"method": PartitionedConfig, "hypers": AFFINE, **BY_NODES},
    "mixed joint": {"method": PartitionedConfig, "hypers": AFFINE, "hyper_share": 0.3, **BY_NODES},
    "mixed fixup": {"method": PartitionedConfig, "net": FIXUP, "optimiser": SGD, **BY_NODES},
    "mixed norms": {"method": PartitionedConfig, "net": GROUPED, "hypers": AFFINE, **BY_NODES},
    "released": {
        "method": ReleasedConfig,
        "hypers": AFFINE,
        "select_by_lml": True,
        "num_extractor_layers": 1,
        **KEPT,
    },
    "released statistics": {"method": ReleasedConfig, "hypers": AFFINE, "net": NORMED, **KEPT},
}


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("case", CASES)
def test_lanes_train_as_they_do_alone(context: Context, case: str) -> None:
    made = configs(**CASES[case])
    assert len({config.pack_key() for config in made}) == 1
    alone = [config.build(context) for config in made]
    pack = made[0].pack([config.build(context) for config in made])
    for _ in range(2):
        found = pack.advance(range(3))
        for lane, learner in enumerate(alone):
            assert far(learner.advance(), found[lane]) < 1e-9
            own, other = learner.state_dict(), pack.state_dict(lane)
            assert own.keys() == other.keys()
            same(other, own)
    assert "test/accuracy" in found[0]


def same(found: Any, wanted: Any) -> None:
    """Two states are equal: numbers to rounding, and whatever else there is exactly."""
    if isinstance(wanted, Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    elif isinstance(wanted, Mapping):
        assert set(found) == set(wanted)
        for key, value in wanted.items():
            same(found[key], value)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-9)
    else:
        assert found == wanted


def bits(learner: Learner | Any, lane: int | None = None) -> bytes:
    state = learner.state_dict() if lane is None else learner.state_dict(lane)
    return checkpoint.to_bytes(state)


def restored(config: Any, context: Context, content: bytes) -> Learner:
    learner: Learner = config.build(context)
    learner.load_state_dict(checkpoint.from_bytes(content))
    return learner


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (StandardConfig, {}),
        (AugerinoConfig, {}),
        (PartitionedConfig, {"net": NORMED}),
        (PartitionedConfig, {"hyper_share": 0.3, **BY_NODES}),
        (ReleasedConfig, {"release": {"fraction": 0.7}}),
    ],
    ids=["standard", "augerino", "partitioned", "mixed", "released"],
)
def test_a_pack_goes_on_bit_for_bit(context: Context, method: type, fields: dict[str, Any]) -> None:
    made = configs(method, hypers=AFFINE, **{**KEPT, **fields})
    pack = made[0].pack([config.build(context) for config in made])
    pack.advance(range(3))
    kept = [bits(pack, lane) for lane in range(3)]
    wanted = pack.advance(range(3))
    pairs = zip(made, kept, strict=True)
    again = made[0].pack([restored(config, context, one) for config, one in pairs])
    assert again.advance(range(3)) == wanted
    assert [bits(again, lane) for lane in range(3)] == [bits(pack, lane) for lane in range(3)]


def test_the_state_of_a_lane_is_that_of_its_learner_and_back(context: Context) -> None:
    made = configs(hypers=AFFINE)
    pack = made[0].pack([config.build(context) for config in made])
    pack.advance(range(3))
    kept = [bits(pack, lane) for lane in range(3)]
    assert len(kept[0]) < 1.1 * len(bits(made[0].build(context))) + 20_000  # no other lane's
    opened = [restored(config, context, one) for config, one in zip(made, kept, strict=True)]
    wanted = pack.advance(range(3))
    for lane, learner in enumerate(opened):
        assert far(learner.advance(), wanted[lane]) < 1e-4
    alone = [config.build(context) for config in made]
    for learner in alone:
        learner.advance()
    joined = made[0].pack(alone)
    found = joined.advance(range(3))
    assert max(far(found[lane], wanted[lane]) for lane in range(3)) < 1e-4


@pytest.mark.parametrize(
    "method", [StandardConfig, AugerinoConfig, ValidationConfig, PartitionedConfig]
)
def test_a_lane_that_diverges_fails_alone_and_the_others_do_not_notice(
    context: Context, method: type
) -> None:
    rates = [{"lr": 1e-2}, {"kind": "adam", "lr": 1e30}, {"lr": 1e-3}]
    made = configs(method, optimiser=rates, hypers=AFFINE, passes=8, interval=4, **KEPT)
    tame = [*made[:1], made[1].replaced({"optimiser.lr": 1e-3}), *made[2:]]
    packs = [each[0].pack([one.build(context) for one in each]) for each in (made, tame)]
    found, wanted = (pack.advance(range(3)) for pack in packs)
    assert isinstance(found[1], DivergedError)
    assert [found[0], found[2]] == [wanted[0], wanted[2]]
    later, calm = (pack.advance([0, 2]) for pack in packs)
    assert later == calm
    assert set(later) == {0, 2}


def test_lanes_that_are_ahead_wait_and_stay_as_they_are(context: Context) -> None:
    net = {"name": "wide_resnet", "depth": 10}
    made = configs(hypers=AFFINE, net=net, passes=4, interval=2)
    whole = made[0].pack([config.build(context) for config in made])
    first, second = whole.advance(range(3)), whole.advance(range(3))
    parted = made[0].pack([config.build(context) for config in made])
    assert parted.advance([1]) == {1: first[1]}
    before = bits(parted, 1)
    assert parted.advance([0, 2]) == {0: first[0], 2: first[2]}
    assert bits(parted, 1) == before
    assert parted.advance(range(3)) == second


def test_lanes_are_released_one_after_another(context: Context) -> None:
    made = configs(ReleasedConfig, hypers=AFFINE, release={"fraction": 0.5}, **KEPT)
    whole = made[0].pack([config.build(context) for config in made])
    first, second = whole.advance(range(3)), whole.advance(range(3))
    parted = made[0].pack([config.build(context) for config in made])
    assert parted.advance([0]) == {0: first[0]}
    assert parted.advance([0]) == {0: second[0]}  # released, and the others are not
    assert parted.advance([1, 2]) == {1: first[1], 2: first[2]}
    assert parted.advance([1, 2]) == {1: second[1], 2: second[2]}


def test_lanes_of_one_pack_have_hyper_rates_of_their_own(context: Context) -> None:
    base = configs(PartitionedConfig, hypers=AFFINE, **KEPT)
    made = [
        config.replaced({"hyper_lr": lr}) for config, lr in zip(base, (1e-3, 0.1, 0.5), strict=True)
    ]
    assert len({config.pack_key() for config in made}) == 1
    found = made[0].pack([config.build(context) for config in made]).advance(range(3))
    alone = [config.build(context).advance() for config in made]
    for lane in range(3):
        assert found[lane]["hyper/rotation"] == pytest.approx(
            alone[lane]["hyper/rotation"], abs=1e-5
        )


def test_lanes_whose_weights_are_dealt_out_differently_are_refused(context: Context) -> None:
    made = configs(PartitionedConfig, hypers=AFFINE, **KEPT)
    other = dataclasses.replace(context, seed=context.seed + 1)
    learners = [
        config.build(one) for config, one in zip(made, (context, context, other), strict=True)
    ]
    with pytest.raises(ConfigError, match="deal out their weights alike"):
        made[0].pack(learners)


def test_lanes_that_read_other_batches_are_refused(context: Context) -> None:
    made = configs()
    learners = [config.build(context) for config in made]
    learners[1].advance()
    pack = made[0].pack(learners)
    with pytest.raises(ConfigError, match="read the same batches"):
        pack.advance(range(3))


def test_configs_that_cannot_be_lanes_of_one_pack_have_other_keys() -> None:
    base = StandardConfig(net=CNN, hypers=AFFINE[0])
    same = {"optimiser.lr": 0.5, "optimiser.schedule": "cosine", "hypers.affine.shear": 0.7}
    for path, value in same.items():
        assert base.replaced({path: value}).pack_key() == base.pack_key()
    other = {
        "net.hidden": 7,
        "batch_size": 9,
        "optimiser.kind": "sgd",
        "optimiser.momentum": 0.5,
        "hypers.samples": 3,
        "hypers.affine.shear": 0.0,  # at no effect
        "hypers.noise": 0.1,
        "augmentation.flip": True,
    }
    for path, value in other.items():
        assert base.replaced({path: value}).pack_key() != base.pack_key()
