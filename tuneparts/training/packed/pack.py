"""A pack of supervised learners: their intervals, and their scores, as lanes of one net.

Legend: P lanes, B examples, N examples of a part of the data, K outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from tuneparts.data.device_examples import DeviceExamples
from tuneparts.errors import ConfigError, DivergedError
from tuneparts.training.learner import Learner
from tuneparts.training.loop import Step
from tuneparts.training.packed.net import LaneNet
from tuneparts.training.packed.optimiser import LaneOptimiser
from tuneparts.training.packed.prediction import LanePrediction
from tuneparts.training.release import Release
from tuneparts.training.runtime import Runtime
from tuneparts.training.state import copied, part_state
from tuneparts.training.supervised import SupervisedLearner

L = TypeVar("L", bound=SupervisedLearner)


def exactly(lanes: Sequence[Learner], kind: type[L]) -> list[L]:
    """The lanes of a pack, each a learner of this very class.

    Raises:
        ConfigError: One is of another class, whose step may be another.
    """
    found = [lane for lane in lanes if type(lane) is kind]
    if len(found) < len(lanes):
        other = next(type(lane).__name__ for lane in lanes if type(lane) is not kind)
        raise ConfigError(
            f"a pack trains learners of {kind.__name__} by a step that it knows, but got {other}. "
            "Use `packed=1`."
        )
    return found


class SupervisedPack(ABC, Generic[L]):
    """The base of packs; a method supplies a step, as it does for its learner.

    Args:
        lanes: learners of one seed whose configs have one `pack_key`.
        optimisers: of the lanes' weights; None where the method moves them by its own.
        holders: as of `LaneNet`.
    """

    def __init__(
        self,
        lanes: Sequence[L],
        optimisers: Sequence[torch.optim.Optimizer] | None,
        *,
        holders: Sequence[nn.Module] | None = None,
    ) -> None:
        self.lanes = lanes
        if any(lane.hypers.draws_globally for lane in lanes):
            raise ConfigError(
                "every lane of a pack has draws of its own, but this net draws from torch's global "
                "generator. Use `nn.Dropout`, or `packed=1`."
            )
        x, _ = lanes[0].train_data.take(torch.arange(min(2, len(lanes[0].train_data))))
        self.net = LaneNet([lane.net for lane in lanes], x, holders)
        self.predict = LanePrediction(self.net, [lane.hypers for lane in lanes])
        configs = {number: lane.config.optimiser for number, lane in enumerate(lanes)}
        self._optimiser: LaneOptimiser | None = None
        if optimisers is not None:
            own = dict(enumerate(optimisers))
            self._optimiser = LaneOptimiser(own, configs, self.net.stack)
        self._late: LaneOptimiser | None = None

    @abstractmethod
    def step(self, leader: L, training: Sequence[int]) -> Step:
        """One update of all lanes; losses are those of each lane (P,).

        Args:
            leader: the first of the lanes that train, which draws what is common to all.
            training: the lanes that train, of which each draws what is its own.
        """

    @abstractmethod
    def common(self, lane: L) -> Iterable[Any]:
        """Those parts of a lane, such as its batches, that are the same in all lanes."""

    def advance(self, lanes: Sequence[int]) -> dict[int, Mapping[str, float] | DivergedError]:
        with Runtime().numerics(self.lanes[0].context.device, is_training=False):
            return self._interval(lanes)

    def _interval(self, lanes: Sequence[int]) -> dict[int, Mapping[str, float] | DivergedError]:
        leader = self.lanes[lanes[0]]
        self._check_in_step(leader, lanes)
        held = self._held(lanes)
        start = leader.passes
        seen: dict[str, list[Tensor]] = {}
        while not (leader.finished or leader.interval_is_over(start)):
            step = self.step(leader, lanes)
            for lane in lanes:
                self.lanes[lane].count(step)
            for name, losses_P in step.losses.items():
                seen.setdefault(name, []).append(losses_P)
        for buffer, lane, value in held:
            buffer[lane].copy_(value)
        self._follow(leader, lanes)
        reports = {lane: self._report(lane, seen, start) for lane in lanes}
        sound = [lane for lane in lanes if not isinstance(reports[lane], DivergedError)]
        scores = self.evaluated(sound) if sound else {}
        for lane in sound:
            scores[lane] |= self.lanes[lane].corrupted_scores()
        return {lane: _joined(reports[lane], scores.get(lane, {})) for lane in lanes}

    def state_dict(self, lane: int) -> dict[str, Any]:
        # A view would be written with the tensor of all lanes behind it.
        found: dict[str, Any] = copied(self.lanes[lane].state_dict(), Tensor.clone)
        return found

    @contextmanager
    def hypers_detached(self) -> Iterator[None]:
        """As `Hypers.detached`, for all lanes."""
        with ExitStack() as stack:
            for lane in self.lanes:
                stack.enter_context(lane.hypers.detached())
            yield

    def late_step(self, releases: Mapping[int, Release], progress: float) -> Step:
        """One update in the last stage of some lanes, as of `Release.step`.

        Args:
            releases: by lane; the first of them draws the batch.
            progress: fraction of the stage that is spent.
        """
        lanes = list(releases)
        leader = releases[lanes[0]]
        x, y_B = leader.examples.take(leader.batches.next())
        streams = {lane: release.augmentation for lane, release in releases.items()}
        with self.hypers_detached():
            outputs_PBK = self.predict(x, streams, training=True)
            losses_P = self.predict.losses(outputs_PBK, y_B, self.lanes[0].target)
        if self._late is None or not self._late.moves(lanes):
            optimisers = {lane: release.optimiser for lane, release in releases.items()}
            configs = {lane: release.config for lane, release in releases.items()}
            self._late = LaneOptimiser(optimisers, configs, self.net.stack)
        self._descend(losses_P.sum(), progress, lanes, self._late)
        return Step(passes=1, losses={"train/loss": losses_P.detach()})

    def descend(
        self,
        objective: Tensor,
        progress: float,
        lanes: Sequence[int],
        also: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        """Move the weights of some lanes by the gradient of the sum of all objectives.

        Args:
            objective: the sum, without what hypers ask for weights.
            progress: fraction of the budget that is spent.
            lanes: which.
            also: optimisers of hypers that move by the same gradient.
        """
        assert self._optimiser is not None
        self._descend(objective, progress, lanes, self._optimiser, also)

    def _descend(
        self,
        objective: Tensor,
        progress: float,
        lanes: Sequence[int],
        weights_optimiser: LaneOptimiser,
        also: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        penalties = self.predict.penalties()
        whole = objective if penalties is None else objective + penalties
        weights = [weight for weight in weights_optimiser.weights if weight.requires_grad]
        hypers = [one for o in also for group in o.param_groups for one in group["params"]]
        found = torch.autograd.grad(whole, [*weights, *hypers], allow_unused=True)
        by_id = {id(leaf): one for leaf, one in zip([*weights, *hypers], found, strict=True)}
        for hyper in hypers:
            hyper.grad = by_id[id(hyper)]
        for optimiser in also:
            optimiser.step()
        moved = [by_id.get(id(weight)) for weight in weights_optimiser.weights]
        weights_optimiser.step(moved, progress, lanes)

    def _report(
        self, lane: int, seen: Mapping[str, list[Tensor]], start: int
    ) -> dict[str, float] | DivergedError:
        learner = self.lanes[lane]
        own = {name: [losses_P[lane] for losses_P in losses] for name, losses in seen.items()}
        try:
            return learner.report(own, start)
        except DivergedError as error:
            self._silence(lane)
            return error

    def _silence(self, lane: int) -> None:
        """Put a lane that is lost to zero: it goes on as arithmetic only."""
        with torch.no_grad():
            for tensor in (*self.net.stack.parameters, *self.net.stack.buffers):
                tensor[lane].zero_()

    def _held(self, lanes: Sequence[int]) -> list[tuple[Tensor, int, Tensor]]:
        """The statistics of norms in lanes that do not train: steps of the others write them."""
        others = [lane for lane in range(len(self.lanes)) if lane not in lanes]
        return [(one, lane, one[lane].clone()) for lane in others for one in self.net.stack.buffers]

    def _check_in_step(self, leader: L, lanes: Sequence[int]) -> None:
        wanted = [part_state(part) for part in self.common(leader)]
        for lane in lanes:
            found = [part_state(part) for part in self.common(self.lanes[lane])]
            if not _same(found, wanted):
                raise ConfigError(
                    f"lanes of a pack read the same batches, but those of lane {lane} are others."
                )

    def _follow(self, leader: L, lanes: Sequence[int]) -> None:
        """Put all lanes where the leader has come to in what is common."""
        for lane in lanes[1:]:
            for own, part in zip(self.common(self.lanes[lane]), self.common(leader), strict=True):
                if isinstance(own, torch.Generator):
                    own.set_state(part.get_state())
                else:
                    own.load_state_dict(part.state_dict())

    def evaluated(self, lanes: Sequence[int]) -> dict[int, dict[str, float]]:
        """What each lane reports besides its losses: its scores, under the draws it has alone."""
        found = {lane: self.lanes[lane].hypers.values() for lane in lanes}
        for split, examples in self.lanes[lanes[0]].scored().items():
            outputs_PNK, y_N = self.outputs_of(lanes, examples, split)
            for lane in lanes:
                scores = self.lanes[lane].target.scores(outputs_PNK[lane], y_N)
                found[lane] |= {f"{split}/{name}": value for name, value in scores.items()}
        return found

    def scored_net(self, lanes: Sequence[int]) -> Callable[..., Tensor] | None:  # noqa: ARG002
        """What is scored of these lanes, as `predict` takes it; None for the nets as they are."""
        return None

    @torch.no_grad()
    def outputs_of(
        self,
        lanes: Sequence[int],
        examples: DeviceExamples,
        split: str,
        net: Callable[..., Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs (P, N, K) and labels of a part of the data; `net` as of `predict`."""
        streams = {lane: self.lanes[lane].generator(f"evaluate {split}") for lane in lanes}
        net = net or self.scored_net(lanes)
        self.net.train(False)
        parts = [
            (self.predict(x, streams, training=False, net=net), y_B)
            for x, y_B in examples.iterate(self.lanes[lanes[0]].scored_at_once)
        ]
        self.net.train(True)
        return torch.cat([o for o, _ in parts], dim=1), torch.cat([y for _, y in parts])


def _joined(
    report: Mapping[str, float] | DivergedError, scores: Mapping[str, float]
) -> Mapping[str, float] | DivergedError:
    return report if isinstance(report, DivergedError) else {**report, **scores}


def _same(one: Any, other: Any) -> bool:
    """Whether two states are equal, tensors included."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
