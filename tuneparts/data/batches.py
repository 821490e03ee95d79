"""Resumable, seeded batches of indices, with and without replacement."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from tuneparts.core import seeding
from tuneparts.core.errors import CheckpointError, ConfigError


class Batches:
    """An endless stream of index batches over `num_examples` examples, with its own generator.

    With replacement every index is drawn uniformly. Without it an epoch is a permutation, of which
    whole batches are taken and the rest is dropped: no batch holds an example twice.
    """

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        *,
        seed: int,
        stream: tuple[str | int, ...] = ("batches",),
        replacement: bool,
    ) -> None:
        most = math.inf if replacement else num_examples
        if num_examples < 1 or not 1 <= batch_size <= most:
            raise ConfigError(
                f"`batch_size` = {batch_size}: must be from 1 to the {num_examples} examples, or "
                "any positive number if drawn with replacement."
            )
        self.num_examples = num_examples
        self.batch_size = batch_size
        self.replacement = replacement
        self._generator = seeding.torch_generator(seed, *stream)
        if not replacement:
            self._start_epoch()

    def next(self) -> torch.Tensor:
        """The next batch of indices: int64 (B,), on the CPU."""
        if self.replacement:
            return torch.randint(self.num_examples, (self.batch_size,), generator=self._generator)
        if self._position + self.batch_size > self.num_examples:
            self._start_epoch()
        start = self._position
        self._position += self.batch_size
        return self._order_N[start : self._position].clone()

    def state_dict(self) -> dict[str, Any]:
        """The position of the stream: a byte tensor and numbers, a few kilobytes in all."""
        state: dict[str, Any] = {"num_examples": self.num_examples, "replacement": self.replacement}
        if self.replacement:
            return state | {"generator": self._generator.get_state()}
        # The permutation itself is left out: it is drawn again from the state before it.
        return state | {"generator": self._epoch_state.clone(), "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from what `state_dict` returned; another batch size is allowed."""
        for key, own in (("num_examples", self.num_examples), ("replacement", self.replacement)):
            if state[key] != own:
                raise CheckpointError(
                    f"a state of batches has {key} = {state[key]}, this stream {own}. "
                    "Resume with the same data config."
                )
        self._generator.set_state(state["generator"])
        if not self.replacement:
            self._start_epoch()
            self._position = int(state["position"])

    def _start_epoch(self) -> None:
        self._epoch_state = self._generator.get_state()
        self._order_N = torch.randperm(self.num_examples, generator=self._generator)
        self._position = 0
