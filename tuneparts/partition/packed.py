"""A pack of partitioned learners: weight steps and hyper steps of several trials as one.

Which partition moves, and by which examples, is drawn by streams that all lanes have in common. A
lane has its own hypers with their draws, learning rates, decay and moments.

Legend: P lanes, B examples, N examples of a part of the data, K outputs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tuneparts.partition.lane_node import LaneMixedBatch, check_mixed
from tuneparts.partition.lanes import LaneParts
from tuneparts.partition.learner import PartitionedLearner
from tuneparts.partition.objective import Evidence
from tuneparts.partition.subnetwork import View
from tuneparts.training.loop import Step
from tuneparts.training.packed.pack import SupervisedPack
from tuneparts.training.packed.prediction import Streams
from tuneparts.training.scores import EVAL_BATCH

L = TypeVar("L", bound=PartitionedLearner)


@dataclass(frozen=True)
class _Move:
    """The losses (P,) of a batch, and what their gradient will move."""

    objective: Tensor
    leaves: Sequence[Tensor]
    losses_P: Tensor
    apply: Callable[[Sequence[Tensor | None]], None]
    """Steps by the gradients of the leaves."""


class PartitionedPack(SupervisedPack[L]):
    """Partitioned training of several trials as lanes of one net."""

    def __init__(self, lanes: Sequence[L]) -> None:
        super().__init__(lanes, None, holders=[lane.parts.learnt() for lane in lanes])
        self.parts = LaneParts([lane.parts for lane in lanes], self.net.stack)
        self.held = [self.net.stack.of(one) for one in _held(lanes[0])]
        """Layers (P, ...) that are learnt as a hyper."""
        if lanes[0].config.mixed:
            data = lanes[0].train_data
            x, _ = data.take(torch.arange(min(2, len(data))))
            check_mixed([lane.parts for lane in lanes], self.net, x)

    def step(self, leader: L, training: Sequence[int]) -> Step:
        if leader._num_joint():
            both = self._weight_move(leader, training), self._hyper_move(leader, training)
            names = ("train/loss", "train/hyper_loss")
            return Step(passes=1, losses=dict(zip(names, _make(*both), strict=True)))
        losses = {"train/loss": _make(self._weight_move(leader, training))[0]}
        if leader.is_hyper_step_due:
            losses["train/hyper_loss"] = _make(self._hyper_move(leader, training))[0]
        return Step(passes=len(losses), losses=losses)

    def common(self, lane: L) -> Iterable[Any]:
        return [one for one in (lane._weight_stream, lane._hyper_stream) if one is not None]

    def _weight_move(self, leader: L, training: Sequence[int]) -> _Move:
        for lane in training:
            self.lanes[lane]._num_weight_steps += 1
        optimisers = {lane: self.lanes[lane].optimiser for lane in training}
        move = partial(self.parts.step, optimisers=optimisers, rates=self._rates(leader, training))
        streams = {lane: self.lanes[lane]._weight_augmentation for lane in training}
        if leader.config.mixed:
            return self._mixed_move(leader, streams, move)
        k, indices_B = leader._weight_stream.next()
        view = self.parts.view(k, trainable=True)
        x, y_B = leader.train_data.take(indices_B)
        with self.hypers_detached():
            outputs_PBK = self.predict(x, streams, training=True, net=self._under(view))
            losses_P = self.predict.losses(outputs_PBK, y_B, leader.target)
        self.parts.keep_statistics(view)
        return _Move(losses_P.sum(), view.leaves, losses_P, partial(move, k))

    def _mixed_move(self, leader: L, streams: Streams, move: Callable[..., None]) -> _Move:
        """As of the learner: each example draws its own partition."""
        levels_B, indices_B = leader._weight_stream.next_mixed()
        levels_B = levels_B.to(leader.context.device)
        batch = self._mixed(leader, levels_B, trainable=True)
        x, y_B = leader.train_data.take(indices_B)
        with self.hypers_detached():
            outputs_PBK = self.predict(x, streams, training=True, net=batch)
            losses_PB = self.predict.each_loss(outputs_PBK, y_B, leader.target)
        counts_B = torch.bincount(levels_B)[levels_B]

        def apply(grads: Sequence[Tensor | None]) -> None:
            for k, own in batch.grads(grads).items():
                move(k, own)

        return _Move((losses_PB / counts_B).sum(), batch.leaves, losses_PB.mean(1), apply)

    def _mixed(self, leader: L, levels_B: Tensor, *, trainable: bool) -> LaneMixedBatch:
        levels_N = levels_B.repeat_interleave(leader.hypers.num_samples(training=True))
        return LaneMixedBatch(self.lanes[0].parts, self.net, levels_N, trainable=trainable)

    def _hyper_move(self, leader: L, training: Sequence[int]) -> _Move:
        assert leader._hyper_stream is not None
        if leader.config.mixed and leader._num_joint():
            numbers_B, indices_B = leader._hyper_stream.next_mixed()
            levels_B = numbers_B.to(leader.context.device) - 1
            net: Callable[..., Tensor] = self._mixed(leader, levels_B, trainable=False)
        else:
            k, indices_B = leader._hyper_stream.next()
            net = self._under(self.parts.view(k - 1))
        x, y_B = leader.train_data.take(indices_B)
        streams = {lane: self.lanes[lane]._hyper_augmentation for lane in training}
        with self.parts.fixed_norms():
            outputs_PBK = self.predict(x, streams, training=True, net=net)
        losses_P = self.predict.losses(outputs_PBK, y_B, leader.target, held_out=True)
        moved = [self.lanes[lane] for lane in training]
        hypers = [one for lane in moved for one in lane.hypers.learnable()]
        return _Move(
            losses_P.sum(),
            [*hypers, *self.held],
            losses_P,
            partial(self._move_hypers, training, hypers),
        )

    def _move_hypers(
        self, training: Sequence[int], hypers: Sequence[Tensor], grads: Sequence[Tensor | None]
    ) -> None:
        for hyper, grad in zip(hypers, grads[: len(hypers)], strict=True):
            hyper.grad = grad
        for lane in training:
            learner = self.lanes[lane]
            for parameter, grad_P in zip(_held(learner), grads[len(hypers) :], strict=True):
                parameter.grad = None if grad_P is None else grad_P[lane].contiguous()
            assert learner._hyper_optimiser is not None
            learner._hyper_optimiser.step()

    def _rates(self, leader: L, training: Sequence[int]) -> dict[int, float]:
        progress = leader.progress
        return {lane: self.lanes[lane].config.optimiser.lr_at(progress) for lane in training}

    def _under(self, view: View) -> Callable[..., Tensor]:
        return partial(self.net, tensors=view.tensors)

    def scored_net(self, lanes: Sequence[int]) -> Callable[..., Tensor] | None:  # noqa: ARG002
        return self._under(self.parts.view(self.lanes[0].parts.num_partitions))

    def evaluated(self, lanes: Sequence[int]) -> dict[int, dict[str, float]]:
        own = {lane: self.lanes[lane] for lane in lanes}
        for learner in own.values():
            learner._calibrated.clear()
        if self.lanes[0].parts.has_statistics:  # taken anew for each score, and not for lanes
            return {lane: learner.evaluate() for lane, learner in own.items()}
        for learner in own.values():
            learner._num_reports += 1
        terms: dict[int, dict[str, float]] = {}
        if self.lanes[lanes[0]].is_evidence_due:
            found = self._evidence(lanes)
            terms = {lane: learner.select(found[lane]) for lane, learner in own.items()}
        scores = super().evaluated(lanes)
        late = self._subnetwork_scores(lanes)
        return {
            lane: {
                **scores[lane],
                **terms.get(lane, {}),
                **late.get(lane, {}),
                **learner.step_counts(),
            }
            for lane, learner in own.items()
        }

    @torch.no_grad()
    def _evidence(self, lanes: Sequence[int]) -> dict[int, Evidence]:
        """L_ML of each lane, as of `partition.evidence`, under the draws that it has alone."""
        leader = self.lanes[lanes[0]]
        streams = {lane: self.lanes[lane].generator("evaluate lml") for lane in lanes}
        batch_size = max(1, EVAL_BATCH // leader.hypers.num_samples(training=True))
        num_draws = leader.hypers.num_draws()
        sums: dict[int, dict[int, float]] = {lane: {} for lane in lanes}
        counts: dict[int, int] = {}
        self.net.train(False)
        for k in range(2, len(leader.chunks) + 1):
            indices_N = torch.from_numpy(leader.chunks.chunk(k).copy())
            if not len(indices_N):
                continue
            net = self._under(self.parts.view(k - 1))
            terms: dict[int, list[Tensor]] = {lane: [] for lane in lanes}
            for indices_B in torch.split(indices_N, batch_size):
                x, y_B = leader.train_data.take(indices_B)
                for _ in range(num_draws):
                    outputs_PBK = self.predict(x, streams, training=True, net=net).double()
                    for lane in lanes:
                        hypers, loss = self.lanes[lane].hypers, leader.target.loss
                        judged = hypers.loss(
                            outputs_PBK[lane], y_B, loss, reduction="sum", held_out=True
                        )
                        terms[lane].append(-judged)
            for lane in lanes:
                sums[lane][k] = float(torch.stack(terms[lane]).sum()) / num_draws
            counts[k] = len(indices_N)
        self.net.train(True)
        return {lane: Evidence(sums[lane], counts) for lane in lanes}

    def _subnetwork_scores(self, lanes: Sequence[int]) -> Mapping[int, dict[str, float]]:
        """Test scores of the subnetworks of each lane, at the end."""
        leader = self.lanes[lanes[0]]
        if not (leader.finished and len(leader._test)):
            return {}
        outputs: dict[str, Tensor] = {}
        for level in range(1, leader.parts.num_partitions + 1):
            net = self._under(self.parts.view(level))
            outputs[str(level)], y_N = self.outputs_of(lanes, leader._test, "test", net)
        each = {
            lane: {which: found_PNK[lane] for which, found_PNK in outputs.items()} for lane in lanes
        }
        return {lane: leader.scores_of_levels(own, y_N) for lane, own in each.items()}


def _held(learner: PartitionedLearner) -> list[nn.Parameter]:
    return learner._psi[len(learner.hypers.learnable()) :]


def _make(*moves: _Move) -> list[Tensor]:
    """Differentiate all losses at once, then step; returns the losses (P,)."""
    objective = torch.stack([move.objective for move in moves]).sum()
    leaves = [leaf for move in moves for leaf in move.leaves]
    found = iter(torch.autograd.grad(objective, leaves, allow_unused=True))
    for move, grads in [(move, [next(found) for _ in move.leaves]) for move in moves]:
        move.apply(grads)
    return [move.losses_P.detach() for move in moves]
