"""What a client does with its data (Mlodozeniec et al. 2023, appendix J, equations 25 and 26).

A client of chunk k trains each of the partitions k..C by itself, from the server's values, in
subnetwork j and by its own data; what it made of one partition is not read by the training of
another. Its gradient of the hyperparameters is that of subnetwork k - 1, which reads partitions
1..k-1 alone: the server's, since this client never changes them. So it judges by unseen data.

Shapes: B examples in a batch, K classes, n examples of the client, m entries that a partition owns.

Who takes part in a round follows from the seed, the round and the sizes of the clients. Clients are
played in this process one after another, or in other tasks, with the same bits. One that fails,
diverges or is late is dropped, and the others go on.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from tuneparts.core import seeding
from tuneparts.core.errors import DivergedError
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Target
from tuneparts.hypers.hypers import HyperModule
from tuneparts.methods.federated._exchange import Answer, Broadcast, Dropped, Update
from tuneparts.methods.partitioned.steps import PartitionedOptimiser
from tuneparts.methods.partitioned.subnetwork import PartitionedNet, View
from tuneparts.training.config import AnyOptimiser
from tuneparts.training.forward import Forward
from tuneparts.training.step import gradients, loss_on


@dataclass(frozen=True)
class Assignment:
    """What one client does in one round."""

    number: int
    client: int
    chunk: int
    """k: the client's data belongs to chunk k."""
    steps: Mapping[int, int]
    """By partition, k..C: local steps."""
    hyper_batches: int
    """Batches of the gradient of the hyperparameters, a step each; 0 for none."""

    @property
    def total(self) -> int:
        return sum(self.steps.values()) + self.hyper_batches


def sampled(num_clients: int, num_asked: int, *, seed: int, number: int) -> list[int]:
    generator = seeding.numpy_generator(seed, "federated", "sampling", number)
    chosen = generator.choice(num_clients, size=num_asked, replace=False)
    return sorted(int(client) for client in chosen)


@dataclass(frozen=True)
class Schedule:
    chunk_of: Sequence[int]
    """By client, its chunk, 1..C."""
    batches_of: Sequence[int]
    """By client, batches of one pass over its data."""
    filled: Sequence[int]
    num_asked: int
    epochs: int
    hyper_batches: int | None
    """Most batches of a hyperparameter gradient; None for the whole client, 0 for no gradients."""
    seed: int

    def assignments(self, number: int, limit: int) -> list[Assignment]:
        """What the clients of a round are asked for, which is cut after `limit` steps in all."""
        assignments = []
        for client in sampled(len(self.chunk_of), self.num_asked, seed=self.seed, number=number):
            assignment = self._cut(number, client, limit)
            if not assignment.total:
                break
            limit -= assignment.total
            assignments.append(assignment)
        return assignments

    def _cut(self, number: int, client: int, limit: int) -> Assignment:
        chunk, batches = self.chunk_of[client], self.batches_of[client]
        steps: dict[int, int] = {}
        for partition in self.filled:
            wanted = min(self.epochs * batches, limit)
            if partition >= chunk and wanted:
                steps[partition] = wanted
                limit -= wanted
        most = batches if self.hyper_batches is None else self.hyper_batches
        hyper_batches = min(most, batches, limit) if chunk > 1 else 0
        return Assignment(number, client, chunk, steps, hyper_batches)


@dataclass(eq=False)
class Client:
    """Plays any client: the partitions of a net, and who holds which examples."""

    parts: PartitionedNet
    """Holds the server's values between clients, and again after each."""
    hypers: HyperModule
    """Read by local training; differentiated for the gradient."""
    examples: DeviceExamples
    target: Target
    clients: Sequence[Tensor]
    """By client, the indices (n,) of its examples."""
    optimiser: AnyOptimiser
    """Of local training; each partition of each client starts it afresh."""
    batch_size: int
    """B; the last batch of an epoch may be smaller."""
    seed: int
    forward: Forward

    def play(
        self, broadcast: Broadcast, assignments: Sequence[Assignment], timeout: float | None
    ) -> list[Answer]:
        """The answers of some clients of a round, played in turn; those that fail are dropped."""
        self.receive(broadcast)
        answers: list[Answer] = []
        for assignment in assignments:
            start = time.monotonic()
            try:
                answer: Answer = self.work(assignment)
            except Exception as error:  # whatever it was, the round goes on without this client
                answer = Dropped.by(error, assignment.client)
            seconds = time.monotonic() - start
            if isinstance(answer, Update) and timeout is not None and seconds > timeout:
                reason = f"late: {seconds:.1f} s, allowed {timeout:g} s"
                answer = Dropped(assignment.client, reason)
            answers.append(answer)
        return answers

    def receive(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        for partition in broadcast.weights:
            self._restore(partition)
        with torch.no_grad():
            for own, sent in zip(self.hypers.learnable(), broadcast.hypers, strict=True):
                own.copy_(sent)

    def work(self, assignment: Assignment) -> Update:
        """Do what a client of the present round was asked for; leaves the server's values."""
        losses: list[Tensor] = []
        with self.forward.training():
            weights = {j: self._train(assignment, j, losses) for j in assignment.steps}
            grads, hyper_loss = self._hyper_gradient(assignment)
        update = Update(
            client=assignment.client,
            num_examples=len(self.clients[assignment.client]),
            weights=weights,
            hyper_grads=grads,
            loss=float(torch.stack(losses).double().mean()) if losses else None,
            hyper_loss=hyper_loss,
        )
        sent = [*grads, *(value for values in weights.values() for value in values)]
        if not all(bool(torch.isfinite(tensor).all()) for tensor in sent):
            raise DivergedError(
                f"what a client sends must be finite, but client {update.client} ended its local "
                f"steps with loss {update.loss} and held-out loss {update.hyper_loss}. Lower the "
                "local learning rate."
            )
        return update

    def batches(self, assignment: Assignment) -> Iterator[Tensor]:
        """Indices (B,) of the client's examples, epoch after epoch; the same for all partitions."""
        own_n = self.clients[assignment.client]
        stream = ("federated", "batches", assignment.number, assignment.client)
        generator = seeding.torch_generator(self.seed, *stream)
        while True:
            shuffled_n = own_n[torch.randperm(len(own_n), generator=generator)]
            yield from torch.split(shuffled_n, self.batch_size)

    def _train(self, assignment: Assignment, partition: int, losses: list[Tensor]) -> list[Tensor]:
        """Local steps of one partition; returns its values, and puts the server's back."""
        optimiser = PartitionedOptimiser(
            self.parts, self.optimiser, decay_factors=(1.0,) * self.parts.num_partitions
        )
        generator = self._augmentation(assignment, partition)
        try:
            for indices_B in islice(self.batches(assignment), assignment.steps[partition]):
                view = self.parts.view(partition, trainable=True)
                with self.hypers.detached():
                    loss = self._loss(view, indices_B, generator)
                optimiser.step(partition, gradients(loss, view.leaves), lr=self._broadcast.lr)
                losses.append(loss.detach())
            shares = self.parts.shares(partition)
            return [share.gather(share.flat_n).clone() for share in shares]
        finally:
            self._restore(partition)

    def _hyper_gradient(self, assignment: Assignment) -> tuple[list[Tensor], float | None]:
        """Gradient of the mean loss over the client's batches under subnetwork k - 1."""
        if not assignment.hyper_batches:
            return [], None
        learnt = self.hypers.learnable()
        view = self.parts.view(assignment.chunk - 1)
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
        self, view: View, indices_B: Tensor, generator: torch.Generator, is_hyper_step: bool = False
    ) -> Tensor:
        return loss_on(
            self.examples.take(indices_B),
            net=partial(self.parts.run, view),
            hypers=self.hypers,
            target=self.target,
            generator=generator,
            reduction="sum" if is_hyper_step else "mean",
            held_out=is_hyper_step,
        )

    def _restore(self, partition: int) -> None:
        sent = self._broadcast.weights[partition]
        for share, values_m in zip(self.parts.shares(partition), sent, strict=True):
            share.scatter(values_m)

    def _augmentation(self, assignment: Assignment, purpose: int | str) -> torch.Generator:
        stream = ("federated", "augment", assignment.number, assignment.client, purpose)
        return seeding.torch_generator(self.seed, *stream, device=self.examples.device)
