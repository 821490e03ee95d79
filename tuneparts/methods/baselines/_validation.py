"""Validation-set optimisation: weights on one part of the data, hyperparameters on the rest.

The baseline of Mlodozeniec et al. (2023), table 2: what partitioned training becomes when all
weights lie in the first partition. Afterwards the held-out part may be given back: fine-tuning on
all data at the hyperparameters found.

With `through_step` their gradient also goes through the last step of the weights, as in Luketina et
al. (2016): with w' = w - lr g(w, psi) and g the gradient of the training loss,

    d L_val(w', psi) / d psi = partial_psi L_val - lr (d g / d psi)^T grad_w' L_val.

So it reaches what only the training loss depends on: label smoothing, or the strength of a penalty.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from tuneparts.data.batches import Batches
from tuneparts.data.chunks import Chunks
from tuneparts.methods.baselines.config import LINKED_STEPS, ValidationSet
from tuneparts.training import forward
from tuneparts.training.learner import Context
from tuneparts.training.loop import Release, Step, SupervisedLearner
from tuneparts.training.step import adam, gradient_step, set_lr, step_rates


class ValidationLearner(
    SupervisedLearner,
    parts=(
        "net", "optimiser", "_hyper_optimiser", "_weight_batches", "_hyper_batches",
        "_weight_augmentation", "_hyper_augmentation", "_finetuning",
    ),
):  # fmt: skip
    config: ValidationSet

    def __init__(self, config: ValidationSet, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        shares = (1 - config.holdout, config.holdout)
        self.chunks = Chunks(len(self.train_data), shares, seed=context.seed)
        self._sources = [torch.from_numpy(self.chunks.chunk(k).copy()) for k in (1, 2)]
        # Streams are named as in partitioned training, of which this is a special case.
        self._weight_batches, self._hyper_batches = (
            Batches(
                len(source),
                config.batch_size,
                seed=context.seed,
                stream=(f"{side} steps", "batch", k),
                replacement=True,
            )
            for k, side, source in zip((1, 2), ("weight", "hyper"), self._sources, strict=True)
        )
        self.optimiser = config.optimiser.build(self.net)
        psi = self.hypers.learnable()
        self._hyper_optimiser = adam(psi, lr=config.hyper_lr) if psi else None
        self._weight_augmentation = self.generator("augment weight steps")
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._finetuning: Release | None = None

    @property
    def searched_steps(self) -> int:
        finetune, steps = self.config.finetune, self.config.steps
        return steps if finetune is None else finetune.start(steps)

    @property
    def progress(self) -> float:
        finetune, steps = self.config.finetune, self.config.steps
        return super().progress if finetune is None else finetune.progress(self.steps, steps)

    def step(self) -> Step:
        if self.steps >= self.searched_steps:
            self._finetuning = self._finetuning or self._release()
            return self._finetuning.step(self.progress)
        if self.config.through_step:
            return self._linked_steps()
        losses = {"train/loss": self.weight_step()}
        if self._is_due(cost=1):
            losses["train/hyper_loss"] = self.hyper_step()
        return Step(cost=len(losses), losses=losses)

    def _is_due(self, *, cost: int) -> bool:
        """Whether the update ends its cycle, and steps for a move of this cost are left."""
        every, end = self.config.hyper_every, self.steps + 1 + cost
        is_last = self.steps % (every + cost) == every - 1
        return self._hyper_optimiser is not None and is_last and end <= self.searched_steps

    def weight_step(self) -> Tensor:
        with self.hypers.detached():
            loss = self._training_loss()
        gradient_step(self.hypers.penalised(loss, self.net.parameters()), self.optimiser)
        return loss.detach()

    def hyper_step(self) -> Tensor:
        assert self._hyper_optimiser is not None
        loss = self._held_out_loss()
        gradient_step(loss, self._hyper_optimiser)
        return loss.detach()

    def _training_loss(self, net: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The loss of the next batch; the optimiser gets the schedule's rate for a step by it."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        batch = self.train_data.take(self._sources[0][self._weight_batches.next()])
        return self.batch_loss(batch, self._weight_augmentation, net=net)

    def _held_out_loss(self) -> Tensor:
        self.net.eval()  # so that the norms neither see nor remember it
        batch = self.train_data.take(self._sources[1][self._hyper_batches.next()])
        loss = self.batch_loss(batch, self._hyper_augmentation, held_out=True)
        self.net.train()
        return loss

    def _linked_steps(self) -> Step:
        """An update, and where steps are left a move by the gradient through it."""
        if not self._is_due(cost=LINKED_STEPS - 1):
            return Step(cost=1, losses={"train/loss": self.weight_step()})
        assert self._hyper_optimiser is not None
        weights = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
        # Gradients as functions of psi, at copies: the step changes the weights in place.
        copies = {name: p.detach().clone().requires_grad_() for name, p in weights.items()}
        with forward.as_outside():
            loss = self._training_loss(lambda x: functional_call(self.net, copies, (x,)))
        leaves = list(copies.values())
        gradients = torch.autograd.grad(
            self.hypers.penalised(loss, leaves), leaves, create_graph=True, materialize_grads=True
        )
        for weight, gradient in zip(weights.values(), gradients, strict=True):
            weight.grad = gradient.detach()
        self.optimiser.step()
        # By the held-out loss at fixed weights, and by way of the last step.
        psi = self.hypers.learnable()
        held_out_loss = self._held_out_loss()
        both = torch.autograd.grad(held_out_loss, [*psi, *weights.values()], materialize_grads=True)
        rates = step_rates(self.optimiser)
        linked = [
            (gradient, -rates[weight] * v)
            for gradient, weight, v in zip(
                gradients, weights.values(), both[len(psi) :], strict=True
            )
            if gradient.requires_grad  # one of a weight on which nothing acts has no graph
        ]
        through = torch.autograd.grad(
            [g for g, _ in linked], psi, [v for _, v in linked], materialize_grads=True
        )
        for parameter, one, other in zip(psi, both[: len(psi)], through, strict=True):
            parameter.grad = one + other
        self._hyper_optimiser.step()
        losses = {"train/loss": loss.detach(), "train/hyper_loss": held_out_loss.detach()}
        return Step(cost=LINKED_STEPS, losses=losses)

    def _release(self) -> Release:
        assert self.config.finetune is not None
        return Release(self, self.config.finetune.optimiser)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._finetuning = None if state["finetuning"] is None else self._release()
        super().restore(state)
