"""Weights and hyperparameters in one run (Mlodozeniec et al. 2023, appendix I.1).

A weight step draws a partition k and moves its weights by a batch of chunks 1..k under subnetwork
k. A hyperparameter step draws a later chunk k and a batch of it, and moves them by its loss under
subnetwork k - 1, which never saw that chunk. Nothing else may lead from chunk k to subnetwork k-1.

A joint step (ours) makes both in one step: a share of the batch are examples of later chunks, which
move the hyperparameters, and the rest move the weights. Both gradients are taken at the same
weights and hyperparameters by one backward pass over two graphs that share no leaf.

A last stage of fine-tuning (ours): partitioning costs capacity (appendix H), since each weight is
trained under one subnetwork, and those of later partitions rarely. So the last part of the steps
may merge the partitions into the ordinary net and train it by an ordinary optimiser at the
hyperparameters found. From then on every weight has seen every chunk, so L_ML would mean nothing
and is no longer reported.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import Chunks
from tuneparts.data.target import Reduction
from tuneparts.methods.partitioned._isolation import check_buffers, check_mixable
from tuneparts.methods.partitioned.config import Partitioned
from tuneparts.methods.partitioned.mixed import MixedBatch
from tuneparts.methods.partitioned.steps import (
    Evidence,
    PartitionedOptimiser,
    _hyper_stream,
    _weight_stream,
    decay_factors,
    evidence,
)
from tuneparts.methods.partitioned.subnetwork import PartitionedNet, View
from tuneparts.nets.survey import PROBE, is_known
from tuneparts.training.config import Finetune
from tuneparts.training.learner import Context
from tuneparts.training.loop import EVAL_BATCH, Release, Step, SupervisedLearner, outputs_of
from tuneparts.training.state import copied
from tuneparts.training.step import adam, gradients

_NUM_CALIBRATION = 1000
"""Examples at most that give norms their statistics before scores."""


class _SubnetworkLearner(SupervisedLearner, parts=("parts",)):
    """A learner whose weights are dealt out to partitions; it predicts with all of them."""

    parts: PartitionedNet

    def subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        """Subnetwork `level` as a function of inputs; it differentiates by held layers only."""
        return partial(self.parts.run, self.parts.view(level))

    def scored_subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        return self.subnetwork(level)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        net = self.scored_subnetwork(self.parts.num_partitions)
        return self.hypers.predict(net, x, generator=generator, training=False)

    def trained_net(self) -> nn.Module:
        # Norm scales and shifts of the net itself stay initial; those that train are in `parts`.
        return self.parts.merged(into=copy.deepcopy(self.net))


@dataclass(frozen=True)
class _Move:
    objective: Tensor
    leaves: Sequence[Tensor]
    loss: Tensor
    apply: Callable[[], None]
    """Steps by the gradients in the leaves' `grad`."""


def _make(*moves: _Move) -> list[Tensor]:
    """Differentiate all objectives at once, then step; returns the losses."""
    objective = torch.stack([move.objective for move in moves]).sum()
    gradients(objective, [leaf for move in moves for leaf in move.leaves])
    for move in moves:
        move.apply()
    return [move.loss.detach() for move in moves]


class PartitionedLearner(
    _SubnetworkLearner,
    parts=(
        "optimiser", "_hyper_optimiser", "_weight_stream", "_hyper_stream",
        "_weight_augmentation", "_hyper_augmentation",
    ),
    values=("_num_updates", "_num_reports", "_best"),
):  # fmt: skip
    """Alternates updates and hyperparameter steps; predicts with all partitions."""

    config: Partitioned

    def __init__(self, config: Partitioned, context: Context) -> None:
        super().__init__(config, context, learns_hypers=len(config.proportions) > 1)
        self.chunks = Chunks(len(self.train_data), config.proportions, seed=context.seed)
        try:
            self.parts = self._divided(config.owned)
        except ConfigError:
            if config.parameter_proportions != "lean":
                raise
            self.parts = self._divided(config.proportions)  # 3 % of a small net are no unit
        self.optimiser = PartitionedOptimiser(
            self.parts,
            config.optimiser,
            decay_factors=decay_factors(self.chunks.sizes, config.weight_decay_scaling),
        )
        self._psi: list[nn.Parameter] = [*self.hypers.learnable(), *self.parts.held()]
        self._hyper_optimiser = adam(self._psi, lr=config.hyper_lr) if self._psi else None
        num_joint, size, seed = self._num_joint(), config.batch_size, context.seed
        filled = self.parts.filled
        self._weight_stream = _weight_stream(self.chunks, filled, size - num_joint, seed)
        self._hyper_stream = _hyper_stream(self.chunks, num_joint or size, seed)
        self._weight_augmentation = self.generator("augment weight steps")
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._num_updates = 0
        self._num_reports = 0
        self._best: dict[str, Any] | None = None
        self._calibrated: dict[int, View] = {}
        check_buffers(self.net, self._first(2))
        if config.mixed and not is_known(self.net):
            check_mixable(self.parts, self._first(PROBE))

    def _divided(self, owned: tuple[float, ...]) -> PartitionedNet:
        config = self.config
        return PartitionedNet(
            self.net,
            proportions=owned,
            seed=self.context.seed,
            scheme=config.scheme,
            defaults="zero" if config.defaults == "zero" else "initial",
            rebuild=self._rebuild if config.defaults == "seed" else None,
            num_held=config.num_extractor_layers,
            example=self._first(1) if config.scheme == "node" else None,
        )

    def _first(self, num: int) -> Tensor:
        return self.train_data.take(torch.arange(min(num, len(self.train_data))))[0]

    @property
    def learns_hypers(self) -> bool:
        """Whether there are hyperparameters to move, and data that judges them."""
        return bool(self._psi) and len(self.chunks) > 1 and any(self.chunks.sizes[1:])

    def _num_joint(self) -> int:
        """Examples of each batch that move hyperparameters in the same step as weights."""
        share, size = self.config.hyper_share, self.config.batch_size
        return min(size - 1, max(1, round(share * size))) if share and self.learns_hypers else 0

    def step(self) -> Step:
        self._calibrated.clear()
        if self._num_joint():
            return Step(cost=1, losses=self.joint_step())
        losses = {"train/loss": self.weight_step()}
        is_due = self._num_updates % self.config.hyper_every == 0
        if is_due and self.steps + 1 < self.config.steps and self.learns_hypers:
            losses["train/hyper_loss"] = self.hyper_step()
        return Step(cost=len(losses), losses=losses)

    def weight_step(self) -> Tensor:
        """Move one partition by one batch, or several by a mixed one; returns the loss."""
        return _make(self._weight_move())[0]

    def hyper_step(self) -> Tensor:
        """Move the hyperparameters by one batch of a chunk that the subnetwork never saw."""
        return _make(self._hyper_move())[0]

    def joint_step(self) -> dict[str, Tensor]:
        """Move weights and hyperparameters by the two shares of one batch; returns both losses."""
        weights, hypers = _make(self._weight_move(), self._hyper_move())
        return {"train/loss": weights, "train/hyper_loss": hypers}

    def _weight_move(self) -> _Move:
        self._num_updates += 1
        lr = self.config.optimiser.lr_at(self.progress)
        moved: View | MixedBatch
        if self.config.mixed:
            # Each example draws its own partition; every partition steps by its mean loss.
            levels_B, indices_B = self._weight_stream.next_mixed()
            moved = self._mixed(levels_B, trainable=True)
            with self.hypers.detached():
                losses_B = self._loss(indices_B, moved, is_mixed=True, reduction="none")
            counts_B = torch.bincount(levels_B)[levels_B].to(losses_B.device)
            objective, loss = (losses_B / counts_B).sum(), losses_B.mean()
        else:
            k, indices_B = self._weight_stream.next()
            moved = self.parts.view(k, trainable=True)
            with self.hypers.detached():
                net = partial(self.parts.run, moved, learns_statistics=True)
                objective = loss = self._loss(indices_B, net)

        def apply() -> None:
            for k, grads in moved.grads().items():
                self.optimiser.step(k, grads, lr=lr)

        return _Move(objective, moved.leaves, loss, apply)

    def _hyper_move(self) -> _Move:
        assert self._hyper_stream is not None
        assert self._hyper_optimiser is not None
        is_mixed = self.config.mixed and bool(self._num_joint())
        if is_mixed:
            # Each example of chunk k draws subnetwork k - 1 in the same call of the net.
            numbers_B, indices_B = self._hyper_stream.next_mixed()
            net: Callable[[Tensor], Tensor] = self._mixed(numbers_B - 1, trainable=False)
        else:
            k, indices_B = self._hyper_stream.next()
            net = self.subnetwork(k - 1)
        loss = self._loss(indices_B, net, is_mixed=is_mixed, held_out=True)
        return _Move(loss, self._psi, loss, self._hyper_optimiser.step)

    def _loss(
        self,
        indices_B: Tensor,
        net: Callable[[Tensor], Tensor],
        *,
        is_mixed: bool = False,
        held_out: bool = False,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The loss of examples that a stream has just drawn: for hyperparameters if held out."""
        stream = self._hyper_stream if held_out else self._weight_stream
        generator = self._hyper_augmentation if held_out else self._weight_augmentation
        batch = self.train_data.take(
            indices_B, of=stream, draw=lambda s: (s.next_mixed() if is_mixed else s.next())[1]
        )
        return self.batch_loss(batch, generator, net=net, reduction=reduction, held_out=held_out)

    def _mixed(self, levels_B: Tensor, *, trainable: bool) -> MixedBatch:
        num_samples = self.hypers.num_samples(training=True)
        levels_N = levels_B.to(self.context.device).repeat_interleave(num_samples)
        return MixedBatch(self.parts, levels_N, trainable=trainable)

    def scored_subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        """Subnetwork `level`, its norms with statistics of the chunks that it was trained on."""
        if not (self.parts.normed and level):
            return self.subnetwork(level)
        if level not in self._calibrated:
            calibrate = partial(self._calibrate, level)
            self._calibrated[level] = self.parts.recalibrated(self.parts.view(level), calibrate)
        return partial(self.parts.run, self._calibrated[level])

    def _calibrate(self, level: int, net: Callable[[Tensor], Any]) -> None:
        generator = self.generator("recalibrate")
        # Chunks are drawn at random, so that the first examples are a sample of all.
        indices_N = torch.from_numpy(self.chunks.cumulative(level)[:_NUM_CALIBRATION].copy())
        num_samples = self.hypers.num_samples(training=False)
        for indices_B in torch.split(indices_N, max(2, EVAL_BATCH // num_samples)):
            if len(indices_B) * num_samples > 1:  # of one row there is no variance
                x, _ = self.train_data.take(indices_B)
                self.hypers.predict(net, x, generator=generator, training=False)

    def merged(self, into: nn.Module | None = None) -> nn.Module:
        """All that scores are of, in an ordinary net; in the learner's own if None."""
        level = self.parts.num_partitions
        self.scored_subnetwork(level)
        net = self.parts.merged(into)
        if level in self._calibrated:
            net.load_state_dict(self._calibrated[level].tensors, strict=False)
        return net

    def trained_net(self) -> nn.Module:
        return self.merged(into=copy.deepcopy(self.net))

    def evidence(self) -> Evidence:
        """L_ML, sampled as in training, alike in every call; norms are as in scores."""
        generator = self.generator("evaluate lml")
        return evidence(
            lambda level, x: self.hypers.predict(
                self.scored_subnetwork(level), x, generator=generator, training=True
            ),
            self.train_data,
            self.chunks,
            loss=partial(self.hypers.loss, loss=self.target.loss, held_out=True),
            batch_size=max(1, EVAL_BATCH // self.hypers.num_samples(training=True)),
            num_draws=self.hypers.num_draws(),
        )

    def evaluate(self) -> dict[str, float]:
        self._num_reports += 1
        is_due = self.finished or self._num_reports % self.config.lml_every == 0
        has_lml = self._hyper_stream is not None and is_due
        metrics = self._select(self.evidence()) if has_lml else {}
        steps = self.optimiser.num_steps.items()
        return {
            **super().evaluate(),
            **metrics,
            **self._subnetwork_scores(),
            **{f"partition/steps.{k}": float(count) for k, count in steps},
        }

    @torch.no_grad()
    def _subnetwork_scores(self) -> dict[str, float]:
        """Test scores, at the end, of every subnetwork by its number and of their mean."""
        if not (self.finished and len(self._test)):
            return {}
        outputs: dict[str, Tensor] = {}
        was_training = self.net.training
        self.net.eval()
        for level in range(1, self.parts.num_partitions + 1):
            draws, net = self.generator("evaluate test"), self.scored_subnetwork(level)
            predict = partial(self.hypers.predict, net, generator=draws, training=False)
            outputs[str(level)], y = outputs_of(predict, self._test, batch_size=self.scored_at_once)
        self.net.train(was_training)
        mean = self.target.combined(torch.stack(list(outputs.values())))
        return {
            f"subnetwork/{name}.{which}": value
            for which, found in {**outputs, "mean": mean}.items()
            for name, value in self.target.scores(found, y).items()
            if name in ("accuracy", "nll")
        }

    def _select(self, found: Evidence) -> dict[str, float]:
        """Remember the best state, and end with it if the config says so."""
        metrics = found.metrics()
        if not self.config.select_by_lml:
            return metrics
        if self._best is None or found.total > self._best["metrics"]["lml/total"]:
            model = {"parts": self.parts.state_dict(), "hypers": self.hypers.state_dict()}
            self._best = {"metrics": metrics, "model": copied(model, Tensor.clone)}
        if self.finished:
            self._load_model_state(self._best["model"])
            metrics = dict(self._best["metrics"])
        return metrics

    def _load_model_state(self, state: Mapping[str, Any]) -> None:
        self._calibrated.clear()
        self.parts.load_state_dict(state["parts"])
        self.hypers.load_state_dict(state["hypers"])

    def restore(self, state: Mapping[str, Any]) -> None:
        self._calibrated.clear()
        super().restore(state)

    def _rebuild(self) -> nn.Module:
        task = self.context.task
        with seeding.isolated(self.context.seed, "init"):
            return self.config.net.build(task.in_shape, task.num_outputs)


class FinetunedLearner(PartitionedLearner, parts=("_finetuning",)):
    """Merges before the last stage: products and sums of affine parts and the last statistics stay.

    Layers that were learnt as a hyperparameter are held with the other hyperparameters. With
    `select_by_lml` the stage starts from the state with the largest L_ML.
    """

    def __init__(self, config: Partitioned, context: Context) -> None:
        task = context.task
        num = len(task.train) + (len(task.val) if config.train_on == "all" else 0)
        if config.batch_size > num:
            raise ConfigError(
                f"`batch_size` = {config.batch_size}: must not exceed the {num} examples, which "
                "the last stage draws without replacement. Lower it."
            )
        super().__init__(config, context)
        self._held = self.parts.held()
        self._stage = config.finetune or Finetune()
        self._finetuning: Release | None = None

    @property
    def progress(self) -> float:
        return self._stage.progress(self.steps, self.config.steps)

    def step(self) -> Step:
        if self.steps < self._stage.start(self.config.steps):
            return super().step()
        if self._finetuning is None:
            if self._best is not None:
                self._load_model_state(self._best["model"])
                self._best = None
            self.merged()
            self._finetuning = self._finetune()
        return self._finetuning.step(self.progress)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self._finetuning is None:
            return super().predict(x, generator)
        return SupervisedLearner.predict(self, x, generator)

    def merged(self, into: nn.Module | None = None) -> nn.Module:
        return super().merged(into) if self._finetuning is None else self.net

    def evaluate(self) -> dict[str, float]:
        if self._finetuning is None:
            return super().evaluate()
        return SupervisedLearner.evaluate(self)

    def _finetune(self) -> Release:
        for parameter in self._held:
            parameter.requires_grad_(False)
        return Release(self, self._stage.optimiser)

    def restore(self, state: Mapping[str, Any]) -> None:
        for parameter in self._held:
            parameter.requires_grad_(True)
        self._finetuning = None if state["finetuning"] is None else self._finetune()
        super().restore(state)
