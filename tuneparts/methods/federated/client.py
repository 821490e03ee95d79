"""What a client does with its data (Mlodozeniec et al. 2023, appendix J, equations 25 and 26).

A client of chunk k trains each of the partitions k..C by itself, from the server's values, in
subnetwork j and by its own data; what it made of one partition is not read by the training of
another. Its gradient of the hypers is that of subnetwork k - 1, which reads partitions 1..k-1
alone: the server's, since this client never changes them. So it stays a judgement on unseen data.

Shapes: B examples in a batch, K classes, n examples of the client, m entries that a partition owns.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from tuneparts.core import seeding
from tuneparts.core.errors import DivergedError
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Target
from tuneparts.hypers.hypers import Hypers
from tuneparts.methods.federated.assignments import Assignment
from tuneparts.methods.federated.exchange import Broadcast, Update
from tuneparts.methods.partitioned.steps import PartitionedOptimiser
from tuneparts.methods.partitioned.subnetwork import Partitioned, View
from tuneparts.training.config import OptimiserConfig
from tuneparts.training.passes import Passes
from tuneparts.training.step import gradients, loss_on


class Client:
    """Plays any client: the partitions of a net, and who holds which examples.

    Args:
        parts: holds the server's values between clients, and again after each.
        hypers: read by local training; differentiated for the gradient.
        examples: the training data of all clients.
        target: of the task.
        clients: by client, the indices (n,) of its examples.
        optimiser: of local training; each partition of each client starts it afresh.
        batch_size: B; the last batch of an epoch may be smaller.
        seed: of the run.
        passes: how local training computes.
    """

    def __init__(
        self,
        parts: Partitioned,
        hypers: Hypers,
        examples: DeviceExamples,
        *,
        target: Target,
        clients: Sequence[Tensor],
        optimiser: OptimiserConfig,
        batch_size: int,
        seed: int,
        passes: Passes,
    ) -> None:
        self._parts = parts
        self._hypers = hypers
        self._examples = examples
        self._target = target
        self._clients = clients
        self._optimiser = optimiser
        self._batch_size = batch_size
        self._seed = seed
        self._passes = passes

    def receive(self, broadcast: Broadcast) -> None:
        """Take the server's values."""
        self._broadcast = broadcast
        for partition in broadcast.weights:
            self._restore(partition)
        with torch.no_grad():
            for own, sent in zip(self._hypers.learnable(), broadcast.hypers, strict=True):
                own.copy_(sent)

    def work(self, assignment: Assignment) -> Update:
        """Do what a client of the present round was asked for; leaves the server's values."""
        with self._passes.training():
            return self._worked(assignment)

    def _worked(self, assignment: Assignment) -> Update:
        losses: list[Tensor] = []
        weights = {j: self._train(assignment, j, losses) for j in assignment.steps}
        grads, hyper_loss = self._hyper_gradient(assignment)
        update = Update(
            client=assignment.client,
            num_examples=len(self._clients[assignment.client]),
            weights=weights,
            hyper_grads=grads,
            loss=float(torch.stack(losses).double().mean()) if losses else None,
            hyper_loss=hyper_loss,
        )
        _refuse_infinite(update)
        return update

    def batches(self, assignment: Assignment) -> Iterator[Tensor]:
        """Indices (B,) of the client's examples, epoch after epoch; the same for all partitions."""
        own_n = self._clients[assignment.client]
        generator = seeding.torch_generator(
            self._seed, "federated", "batches", assignment.number, assignment.client
        )
        while True:
            shuffled_n = own_n[torch.randperm(len(own_n), generator=generator)]
            yield from torch.split(shuffled_n, self._batch_size)

    def _train(self, assignment: Assignment, partition: int, losses: list[Tensor]) -> list[Tensor]:
        """Local steps of one partition; returns its values, and puts the server's back."""
        optimiser = PartitionedOptimiser(
            self._parts, self._optimiser, decay_factors=(1.0,) * self._parts.num_partitions
        )
        generator = self._augmentation(assignment, partition)
        try:
            for indices_B in islice(self.batches(assignment), assignment.steps[partition]):
                view = self._parts.view(partition, trainable=True)
                with self._hypers.detached():
                    loss = self._loss(view, indices_B, generator)
                optimiser.step(partition, gradients(loss, view.leaves), lr=self._broadcast.lr)
                losses.append(loss.detach())
            shares = self._parts.shares(partition)
            return [share.gather(share.flat_n).clone() for share in shares]
        finally:
            self._restore(partition)

    def _hyper_gradient(self, assignment: Assignment) -> tuple[list[Tensor], float | None]:
        """Gradient of the mean loss over the client's batches under subnetwork k - 1."""
        if not assignment.hyper_batches:
            return [], None
        learnt = self._hypers.learnable()
        view = self._parts.view(assignment.chunk - 1)
        generator = self._augmentation(assignment, "hypers")
        batches = list(islice(self.batches(assignment), assignment.hyper_batches))
        num_seen = sum(len(indices_B) for indices_B in batches)
        total = [torch.zeros_like(parameter) for parameter in learnt]
        losses = []
        for indices_B in batches:
            loss = self._loss(view, indices_B, generator, is_hyper_step=True) / num_seen
            found = torch.autograd.grad(loss, learnt, materialize_grads=True)
            total = [a + b for a, b in zip(total, found, strict=True)]
            losses.append(loss.detach())
        return total, float(torch.stack(losses).double().sum())

    def _loss(
        self,
        view: View,
        indices_B: Tensor,
        generator: torch.Generator,
        *,
        is_hyper_step: bool = False,
    ) -> Tensor:
        return loss_on(
            self._examples.take(indices_B),
            net=lambda inputs: self._parts.run(view, inputs),
            hypers=self._hypers,
            target=self._target,
            generator=generator,
            reduction="sum" if is_hyper_step else "mean",
            held_out=is_hyper_step,
        )

    def _restore(self, partition: int) -> None:
        sent = self._broadcast.weights[partition]
        for share, values_m in zip(self._parts.shares(partition), sent, strict=True):
            share.scatter(values_m)

    def _augmentation(self, assignment: Assignment, purpose: int | str) -> torch.Generator:
        return seeding.torch_generator(
            self._seed,
            "federated",
            "augment",
            assignment.number,
            assignment.client,
            purpose,
            device=self._examples.device,
        )


def _refuse_infinite(update: Update) -> None:
    """A client that diverged must not reach the server."""
    sent = [*update.hyper_grads, *(v for values in update.weights.values() for v in values)]
    if not all(bool(torch.isfinite(tensor).all()) for tensor in sent):
        raise DivergedError(
            f"what a client sends must be finite, but client {update.client} ended its local steps "
            f"with loss {update.loss} and hyper loss {update.hyper_loss}. Lower the local learning "
            "rate."
        )
