"""The contracts of a data set and of a hyperparameter: what every one keeps, ours or not."""

import copy
import hashlib
import json
import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.data.target import Classes
from tuneparts.data.task import Examples, Task, digest
from tuneparts.hypers import Hyper, Hypers
from tuneparts.hypers.hypers import HyperModule

_EXAMPLES = 5


class DatasetContract:
    """The laws of a data set and its splits; nothing is trained.

    Inherit it in a class that pytest collects, and name the data, with at least four training
    examples.

    Example:
        >>> class TestMine(DatasetContract):
        ...     data = Data(name="blobs", num_train=40, num_val=10, num_test=10)
        >>> TestMine().test_it_loads_equal_twice()
    """

    data: ClassVar[Data]
    has_duplicates: ClassVar[bool] = False
    """Whether equal examples occur more than once, so that parts cannot be distinguished."""

    def test_it_survives_json(self) -> None:
        """A worker, and whoever resumes the run, gets it as JSON."""
        assert parse(Data, json.loads(self.data.model_dump_json())) == self.data

    def test_it_loads_equal_twice(self) -> None:
        """A run that goes on after a crash loads it anew: random draws have a seed."""
        assert digest(self.data.load()) == digest(self.data.load())

    def test_no_part_is_empty_but_validation(self) -> None:
        task = self.data.load()
        assert len(task.train) >= 4
        assert len(task.test) > 0

    def test_parts_are_alike(self) -> None:
        task = self.data.load()
        train, *others = _parts(task)
        assert train.inputs.shape[1:] == task.in_shape
        for part in others:
            for ours, first in ((part.inputs, train.inputs), (part.labels, train.labels)):
                assert (ours.shape[1:], ours.dtype) == (first.shape[1:], first.dtype)

    def test_parts_are_disjoint(self) -> None:
        """An example in two parts would make a score too good."""
        parts = list(map(_names, _parts(self.data.load())))
        assert self.has_duplicates or len(set().union(*parts)) == sum(map(len, parts))

    def test_a_smaller_training_part_lies_in_a_larger_one(self) -> None:
        large, small = _parts(self.data.load()), _parts(self._halved())
        assert _names(small[0]) <= _names(large[0])
        assert [*map(_names, small[1:])] == [*map(_names, large[1:])]

    def test_another_seed_chooses_other_examples(self) -> None:
        one, other = self._halved(), self._halved(seed=(self.data.seed or 0) + 1)
        assert not np.array_equal(one.train.inputs, other.train.inputs)

    def test_its_target_takes_its_labels(self) -> None:
        """Outputs of zero have a finite loss and the scores that the target declares."""
        task = self.data.load()
        y = torch.as_tensor(task.test.labels)
        outputs = torch.zeros(len(y), task.num_outputs)
        losses_B = task.target.loss(outputs, y, reduction="none")
        assert losses_B.shape == (len(y),)
        assert bool(torch.isfinite(losses_B).all())
        declared = {metric.name for metric in task.target.metrics}
        assert set(task.target.scores(outputs, y)) <= declared

    def _halved(self, **changes: int) -> Task:
        num = len(self.data.load().train) // 2
        return self.data.replaced({"num_train": num, **changes}).load()


def _parts(task: Task) -> list[Examples]:
    return [task.train, task.val, task.test]


def _names(examples: Examples) -> set[bytes]:
    """Each example by its input and label."""
    inputs = (np.asarray(examples.inputs[i : i + 1]).tobytes() for i in range(len(examples)))
    pairs = zip(inputs, examples.labels, strict=True)
    return {hashlib.sha256(x + y.tobytes()).digest() for x, y in pairs}


class HyperContract:
    """The laws of a hyperparameter, seen on a small net and five examples.

    Inherit it in a class that pytest collects, and name a hyperparameter whose values lie inside
    their range, where they have an effect.

    Example:
        >>> from tuneparts.hypers import LabelSmoothing
        >>> class TestMine(HyperContract):
        ...     hyper = LabelSmoothing(rate=0.2)
        >>> TestMine().test_the_gradient_reaches_every_number()
    """

    hyper: ClassVar[Hyper]
    name: ClassVar[str] = "mine"
    """Of the hyperparameter in its config."""
    in_shape: ClassVar[tuple[int, ...]] = (1, 6, 6)
    """Shape of one input."""
    num_outputs: ClassVar[int] = 3

    @property
    def config(self) -> Hypers:
        return parse(Hypers, {self.name: self.hyper, "samples": 2})

    def net(self) -> nn.Module:
        """A net with a dropout layer, in which hyperparameters of activations act."""
        size = math.prod(self.in_shape)
        net = nn.Sequential(
            nn.Flatten(), nn.Linear(size, 8), nn.Dropout(0.0), nn.Tanh(),
            nn.Linear(8, self.num_outputs),
        )  # fmt: skip
        with torch.no_grad():
            for number, weight in enumerate(net.parameters()):
                weight.copy_(torch.randn(weight.shape, generator=_generator(number)))
        return net

    def built(
        self, config: Hypers | None = None, *, learnable: bool = True
    ) -> tuple[HyperModule, nn.Module]:
        """The hyperparameters of a run and its net, in double precision."""
        net = self.net()
        hypers = (config or self.config).build(
            learnable=learnable, net=net, in_shape=self.in_shape, num_outputs=self.num_outputs
        )
        return hypers.double(), net.double()

    def objective(self, hypers: HyperModule, net: nn.Module, *, seed: int = 0) -> Tensor:
        y_B = torch.arange(_EXAMPLES) % self.num_outputs
        outputs_BK = hypers.predict(net, self._x(), generator=_generator(seed), training=True)
        loss = hypers.loss(outputs_BK, y_B, Classes().loss)
        return hypers.penalised(loss, net.parameters())

    def _x(self) -> Tensor:
        return torch.randn(_EXAMPLES, *self.in_shape, generator=_generator(7), dtype=torch.float64)

    def test_it_survives_json(self) -> None:
        back = parse(Hypers, json.loads(self.config.model_dump_json()))
        assert type(back.parts[self.name]) is type(self.hyper)
        assert back == self.config

    def test_what_it_reports_is_declared(self) -> None:
        hypers, _ = self.built()
        declared = {metric.name: metric for metric in self.config.metrics()}
        assert all(name.startswith("hyper/") and m.meaning for name, m in declared.items())
        assert hypers.values()
        for name in hypers.values():
            family = name.rpartition(".")[0] + ".*"
            assert {name, family} & declared.keys(), name

    def test_reported_values_are_placed_by_at(self) -> None:
        for learnable in (True, False):
            hypers, _ = self.built(learnable=learnable)
            found = hypers.values()
            placed = self.config.at({name.removeprefix("hyper/"): v for name, v in found.items()})
            again, _ = self.built(placed, learnable=False)
            assert again.values().keys() == found.keys()
            for name, value in again.values().items():
                assert abs(value - found[name]) < 1e-5 * max(1.0, abs(value)), name

    def test_the_gradient_reaches_every_number(self) -> None:
        """Draws are the same in every call, so finite differences see what the gradient sees."""
        hypers, net = self.built()
        learnt = hypers.learnable()
        assert learnt
        gradients = torch.autograd.grad(self.objective(hypers, net), learnt)
        assert all(bool(gradient.all()) for gradient in gradients)
        assert torch.autograd.gradcheck(
            lambda *_: self.objective(hypers, net),
            learnt,
            atol=1e-7,
            rtol=1e-4,
            check_undefined_grad=False,
            raise_exception=False,
        )

    def test_at_its_identity_it_does_nothing(self) -> None:
        """A hyperparameter whose numbers have no such value is left out."""
        identity = {field: number.identity for field, number in self.hyper.numbers().items()}
        if not identity or None in identity.values():
            return
        still = self.hyper.replaced(identity)
        config = parse(Hypers, {self.name: still, "samples": 2})
        hypers, net = self.built(config, learnable=False)
        bare = Hypers().build(learnable=False, net=net, in_shape=self.in_shape)
        draws = _generator(0)
        for training in (True, False):
            found = hypers.predict(net, self._x(), generator=draws, training=training)
            assert torch.equal(found, net(self._x()))
        assert torch.equal(self.objective(hypers, net), self.objective(bare, net))
        assert torch.equal(draws.get_state(), _generator(0).get_state())

    def test_its_draws_come_from_the_generator_alone(self) -> None:
        hypers, net = self.built()
        before = torch.get_rng_state()
        first, again, other = (self.objective(hypers, net, seed=seed) for seed in (0, 0, 1))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first, again)
        assert torch.equal(first, other) != (hypers.num_samples(training=True) > 1)

    def test_frozen_it_leaves_no_state(self) -> None:
        hypers, _ = self.built(self.config.replaced({"frozen": (self.name,)}))
        assert hypers.learnable() == []
        assert hypers.state_dict() == {}

    def test_its_state_continues_where_it_was(self) -> None:
        moved, net = self.built()
        with torch.no_grad():
            for parameter in moved.learnable():
                # Not all alike: a shift of all logits changes no probability.
                parameter.add_(0.1 + 0.1 * torch.arange(parameter.numel()).view_as(parameter))
        loaded, _ = self.built()
        assert not torch.equal(self.objective(loaded, net), self.objective(moved, net))
        loaded.load_state_dict(copy.deepcopy(moved.state_dict()))
        assert loaded.values() == moved.values()
        assert torch.equal(self.objective(loaded, net), self.objective(moved, net))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
