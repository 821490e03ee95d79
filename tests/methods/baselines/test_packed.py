"""Packs of standard learners: each slot trains as its learner does by itself."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.task import Examples, Task
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.baselines.standard import StandardLearner
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context
from tuneparts.training.pack import Pack, pack_key
from tuneparts.training.state import copied

AFFINE = [{"affine": {"kind": "lila", "rotation": r}, "samples": 2} for r in (0.1, 0.7, 2.0)]
RATES = [{"lr": 1e-2}, {"lr": 3e-3, "weight_decay": 0.1}, {"lr": 1e-3, "schedule": "cosine"}]
SGD = [{"kind": "sgd", "lr": lr, "nesterov": True, "weight_decay": 0.01} for lr in (0.1, 0.05, 0.2)]
CNN = {"name": "digits_cnn", "channels": (3, 4), "hidden": 5}
MLP = {"name": "mlp", "widths": (6,)}
MIXED = [
    {
        "affine": {"kind": "benton", "rotation": 0.2 * number},
        "dropout": {"rate": 0.1 * number},
        "noise": 0.1 * number,
        "temperature": 1 + 0.1 * number,
        "smoothing": {"kind": "label_smoothing", "rate": 0.1 * number},
        "decay": {"kind": "weight_decay", "strength": 0.1 * number},
        "samples": 2,
    }
    for number in (1, 2, 3)
]
CASES: dict[str, dict[str, Any]] = {
    "plain": {"net": MLP},
    "affine": {"hypers": AFFINE},
    "sgd": {"hypers": AFFINE, "optimiser": SGD, "augmentation": {"flip": True, "crop_padding": 1}},
    "everything": {"hypers": MIXED},
    "masks": {"net": MLP, "hypers": [{"mask": {"keep": k}} for k in (0.3, 0.5, 0.9)]},
    "schwoebel": {"hypers": [{"affine": {"kind": "schwoebel"}}] * 3},
    "dropout": {"hypers": [{"dropout": {"rate": r}, "samples": 2} for r in (0.2, 0.3, 0.4)]},
    "norms": {"net": {"name": "resnet9", "width": 2}},
    "fixup": {"net": {"name": "fixup_resnet", "planes": 2}, "optimiser": SGD},
}


@pytest.fixture
def context() -> Context:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 1, 8, 8), dtype=np.uint8)
    whole = Examples(pixels, rng.integers(0, 10, 120))
    parts = {"train": (0, 80), "val": (80, 100), "test": (100, 120)}
    subsets = {name: whole.subset(np.arange(*ends)) for name, ends in parts.items()}
    task = Task("noise", **subsets, num_classes=10, mean=(0.5,), std=(0.3,))
    return Context(task=task, seed=0, device=torch.device("cpu"), stream=("search", "arm", 0))


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


def configs(*, hypers: Sequence[Any] = ({},) * 3, **fields: Any) -> list[Standard]:
    values = {"net": CNN, "batch_size": 8, "steps": 6, "interval": 3, **fields}
    rates = values.pop("optimiser", RATES)
    return [
        Standard(hypers=one, optimiser=rate, **values)
        for one, rate in zip(hypers, rates, strict=True)
    ]


def learner(config: Standard, context: Context, content: bytes | None = None) -> Any:
    made = config.build(context)
    if content is not None:
        made.load_state_dict(checkpoint.from_bytes(content))
    return made


def bits(one: Any) -> bytes:
    """The state of a learner, whose tensors may be views of those of its pack."""
    return checkpoint.to_bytes(copied(one.state_dict(), Tensor.clone))


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


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("case", CASES)
def test_slots_train_as_their_learners_do_alone(context: Context, case: str) -> None:
    made = configs(**CASES[case])
    assert len({pack_key(config) for config in made}) == 1
    alone = {slot: learner(one, context) for slot, one in zip((0, 3, 1), made, strict=True)}
    packed = {slot: learner(one, context) for slot, one in zip((0, 3, 1), made, strict=True)}
    pack = Pack(packed, 4)
    for _ in range(2):
        found = pack.advance()
        for slot, one in alone.items():
            same(found[slot], one.advance())
            same(packed[slot].state_dict(), one.state_dict())
    assert "test/accuracy" in found[0]


@pytest.mark.parametrize("case", ["plain", "affine", "everything", "norms", "fixup"])
def test_companions_do_not_change_a_bit_before_or_after_a_crash(
    context: Context, case: str
) -> None:
    """A trial keeps its slot; which others it meets in its pack differs, also half-way."""
    made = dict(enumerate(configs(**CASES[case])))

    def trained(*meets: tuple[int, ...]) -> tuple[list[Any], bytes]:
        """Rows and last state of the trial in slot 1, an interval with each of these packs."""
        rows, states = [], dict[int, bytes]()
        for slots in meets:
            learners = {slot: learner(made[slot], context, states.get(slot)) for slot in slots}
            rows.append(Pack(learners, 3).advance()[1])
            states = {slot: bits(one) for slot, one in learners.items()}
        return rows, states[1]

    wanted = trained((0, 1, 2), (0, 1, 2))
    assert trained((1,), (1,)) == wanted
    assert trained((1, 0, 2), (2, 1)) == wanted


def test_a_slot_that_diverges_leaves_the_others_as_they_are(context: Context) -> None:
    rates = [{"lr": 1e-2}, {"lr": 1e30}, {"lr": 1e-3}]
    wild = configs(optimiser=rates, hypers=AFFINE, steps=8, interval=4)
    tame = [wild[0], wild[1].replaced({"optimiser.lr": 1e-3}), wild[2]]
    found, wanted = (
        Pack({slot: learner(one, context) for slot, one in enumerate(made)}, 3).advance()
        for made in (wild, tame)
    )
    assert isinstance(found[1], DivergedError)
    assert [found[0], found[2]] == [wanted[0], wanted[2]]


def test_what_a_score_draws_globally_is_what_it_draws_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandardLearner, "evaluate", lambda _: {"own": float(torch.rand(()))})
    contexts = [dataclasses.replace(context, stream=("search", "arm", i)) for i in range(3)]
    pairs = list(zip(configs(), contexts, strict=True))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    found = Pack({slot: learner(*pair) for slot, pair in enumerate(pairs)}, 3).advance()
    assert torch.equal(torch.get_rng_state(), before)
    for slot, pair in enumerate(pairs):
        with seeding.seeded_globals(0, "globals", "search", "arm", slot, 0):
            assert found[slot]["own"] == learner(*pair).advance()["own"]


def test_configs_that_cannot_be_packed_together_have_other_keys() -> None:
    base = Standard(net=CNN, hypers=AFFINE[0])
    alike = {"optimiser.lr": 0.5, "optimiser.schedule": "cosine", "hypers.affine.shear": 0.7}
    for path, value in alike.items():
        assert pack_key(base.replaced({path: value})) == pack_key(base)
    other = {
        "net.hidden": 7,
        "batch_size": 9,
        "optimiser": {"kind": "sgd", "momentum": 0.5},
        "hypers.samples": 3,
        "hypers.affine.shear": 0.0,  # at no effect
        "hypers.noise": 0.1,
        "augmentation.flip": True,
    }
    for path, value in other.items():
        assert pack_key(base.replaced({path: value})) != pack_key(base)
    noisy, still = (Standard(net=CNN, hypers={"noise": std}) for std in (0.1, 0.0))
    assert pack_key(noisy) != pack_key(still)
    masks = [Standard(net=MLP, hypers={"mask": {"keep": k}}) for k in (0.3, 0.0, 1.0)]
    assert pack_key(masks[0]) == pack_key(masks[1]) != pack_key(masks[2])


class OwnDropout(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(64, width), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.linear(x.flatten(1)))


def own_dropout(in_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return OwnDropout(num_outputs)


def test_a_net_with_draws_inside_is_refused_by_name(context: Context) -> None:
    config = Standard(net={"name": f"{__name__}:own_dropout"})
    with pytest.raises(ConfigError, match="net OwnDropout: every trial has draws of its own"):
        Pack({0: learner(config, context)}, 2)
