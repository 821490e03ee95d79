"""Who takes part in a round, and what each client is asked for.

Everything here follows from the seed, the round and the sizes of the clients, so that methods with
the same clients and the same seed ask the same clients, and a resumed run needs no generator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuneparts.core import seeding


@dataclass(frozen=True)
class Assignment:
    """What one client does in one round."""

    number: int
    """Of the round, from 0."""
    client: int
    chunk: int
    """k: the client's data belongs to chunk k."""
    steps: Mapping[int, int]
    """By partition, k..C: local steps, each of one pass."""
    hyper_batches: int
    """Batches of the gradient of the hypers, each of one pass; 0 for none."""

    @property
    def passes(self) -> int:
        """Forward-backwards over one batch."""
        return sum(self.steps.values()) + self.hyper_batches


def sampled(num_clients: int, num_asked: int, *, seed: int, number: int) -> list[int]:
    """The clients of a round, ascending, drawn without replacement."""
    generator = seeding.numpy_generator(seed, "federated", "sampling", number)
    chosen = generator.choice(num_clients, size=num_asked, replace=False)
    return sorted(int(client) for client in chosen)


@dataclass(frozen=True)
class Schedule:
    """Makes the assignments of any round."""

    chunk_of: Sequence[int]
    """By client, its chunk, 1..C."""
    batches_of: Sequence[int]
    """By client, batches of one pass over its data."""
    filled: Sequence[int]
    """Partitions that own weights."""
    num_asked: int
    """Clients per round."""
    epochs: int
    """Local passes over a client's data."""
    hyper_batches: int | None
    """Most batches of a hyper gradient; None for the whole client, 0 for no gradients."""
    seed: int

    def assignments(self, number: int, limit: int) -> list[Assignment]:
        """What the clients of round `number` are asked for.

        Args:
            number: of the round, from 0.
            limit: passes that are left. The round is cut there: later clients are not asked, and
                the last one does part of its work.
        """
        assignments = []
        for client in sampled(len(self.chunk_of), self.num_asked, seed=self.seed, number=number):
            assignment = self._cut(number, client, limit)
            if not assignment.passes:
                break
            limit -= assignment.passes
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
