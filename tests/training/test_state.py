"""A class names its state once; saving, loading and the check for what is missing follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuneparts.core.errors import CheckpointError
from tuneparts.nets import Mlp
from tuneparts.training import checkpoint
from tuneparts.training.config import Sgd
from tuneparts.training.state import Stateful


@dataclass(frozen=True)
class Sent:
    up: int = 0
    down: int = 0


class Walk(
    Stateful,
    parts=("_net", "optimiser", "_steps", "_numbers", "_streams", "_inner"),
    values=("position", "_sent", "_seen", "_note"),
):
    def __init__(self, *, lr: float = 0.1) -> None:
        self._net = Mlp(name="mlp", widths=(4,)).build((3,), 2)
        self.optimiser = Sgd(lr=lr).build(self._net)
        self._steps = torch.Generator().manual_seed(1)
        self._numbers = np.random.default_rng(2)
        self._streams = {k: torch.Generator().manual_seed(k) for k in (1, 2)}
        self._inner: Walk | None = None
        self.position = 0
        self._sent = Sent()
        self._seen: dict[str, list[torch.Tensor]] = {}
        self._note: str | None = None

    def walk(self) -> list[Any]:
        self.optimiser.zero_grad()
        self._net(torch.ones(2, 3)).square().sum().backward()
        self.optimiser.step()
        self.position += 1
        self._sent = Sent(up=self._sent.up + 3, down=self.position)
        drawn = torch.rand(2, generator=self._steps)
        self._seen.setdefault("drawn", []).append(drawn)
        self._note = f"at {self.position}"
        others = [torch.rand(1, generator=g).item() for g in self._streams.values()]
        weights = [p.detach().clone().tolist() for p in self._net.parameters()]
        return [drawn.tolist(), others, self._numbers.random(), self._sent, weights]


class LongerWalk(Walk, values=("lap",)):
    lap = 7


def test_a_restored_object_goes_on_as_the_saved_one() -> None:
    first, second = Walk(), Walk()
    first.walk()
    second.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(first.state_dict())))
    assert second._sent == Sent(up=3, down=1)
    assert second._note == "at 1"
    assert [first.walk() for _ in range(3)] == [second.walk() for _ in range(3)]


def test_names_of_base_classes_come_first_and_lose_their_underscore() -> None:
    walk = LongerWalk()
    assert list(walk.state_dict()) == [
        *("position", "sent", "seen", "note", "lap"),
        *("net", "optimiser", "steps", "numbers", "streams", "inner"),
    ]


def test_moments_are_copied_and_the_own_rate_stays() -> None:
    first, second = Walk(lr=0.1), Walk(lr=0.7)
    first.walk()
    second.load_state_dict(first.state_dict())
    assert second.optimiser.param_groups[0]["lr"] == 0.7
    moments = [
        {state["momentum_buffer"].data_ptr() for state in walk.optimiser.state.values()}
        for walk in (first, second)
    ]
    assert moments[0].isdisjoint(moments[1])
    assert first._seen["drawn"][0].data_ptr() != second._seen["drawn"][0].data_ptr()


def test_saved_containers_do_not_grow_with_the_object() -> None:
    walk = Walk()
    walk.walk()
    state = walk.state_dict()
    walk.walk()
    assert len(state["seen"]["drawn"]) == 1


@pytest.mark.parametrize(
    "forgotten",
    [
        torch.Generator(),
        np.random.default_rng(0),
        torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0),
        {"a": torch.Generator()},
        [LongerWalk()],
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_draws_or_moves_cannot_be_forgotten(forgotten: Any) -> None:
    walk = Walk()
    walk._forgotten = forgotten  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"`_forgotten` .* `parts`"):
        walk.state_dict()


def test_a_state_of_something_else_is_refused_by_name() -> None:
    for state in ({}, Walk().state_dict() | {"inner": {}}, Walk().state_dict() | {"net": {}}):
        with pytest.raises(CheckpointError, match="Walk"):
            Walk().load_state_dict(state)


def test_moments_are_laid_out_in_memory_as_their_parameters_are() -> None:
    class Trained(Stateful, parts=("net", "optimiser")):
        def __init__(self, layout: torch.memory_format) -> None:
            torch.manual_seed(0)
            self.net = torch.nn.Conv2d(3, 4, 3).to(memory_format=layout)
            self.optimiser = torch.optim.Adam(self.net.parameters(), lr=0.1, fused=True)

        def step(self) -> None:
            torch.manual_seed(1)
            self.net.zero_grad()
            self.net(torch.randn(2, 3, 5, 5)).square().sum().backward()
            self.optimiser.step()

    one = Trained(torch.contiguous_format)
    one.step()
    other = Trained(torch.channels_last)
    other.load_state_dict(one.state_dict())
    one.step()
    other.step()
    torch.testing.assert_close(one.net.weight, other.net.weight, rtol=1e-4, atol=1e-4)
