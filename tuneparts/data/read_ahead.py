"""Reads the batches of a stream ahead of training, in processes beside this one.

A copy of the stream runs ahead and says what will be asked for. What was read ahead is used only
where it is what is asked for: a stream that jumps, as at a resume, is read from where it then is,
and nothing that is read depends on how far ahead anyone was.

Shapes: B examples in a batch.
"""

import copy
import multiprocessing
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tuneparts.data.stored import StoredImages

Draw = Callable[[Any], Tensor]
"""Takes the next batch of indices (B,) from a stream."""
SERVER = "tuneparts.data.reader"
"""What the server of reading processes imports. It would not say that there is no such module."""
_AHEAD = 2
"""Batches that every process reads ahead."""


class ReadAhead:
    """Reads images of streams ahead.

    Args:
        images: on disk.
        readers: processes for each stream.
        is_pinned: whether batches lie in memory that a GPU copies from by itself.
    """

    def __init__(self, images: StoredImages, *, readers: int, is_pinned: bool) -> None:
        self._images = images
        self._readers = readers
        self._is_pinned = is_pinned
        self._following: dict[int, _Following] = {}

    def take(self, indices_B: Tensor, stream: Any, draw: Draw) -> Tensor:
        """The images at these indices, which the stream has just drawn: uint8 (B, C, H, W)."""
        key = id(stream)
        if key not in self._following:
            weakref.finalize(stream, self._following.pop, key, None)
        elif self._following[key].expects(indices_B):
            return self._following[key].next()
        ahead = copy.deepcopy(stream)
        self._following[key] = _Following(self.loader(_endless(ahead, draw)))
        return torch.from_numpy(self._images[indices_B.numpy()])

    def loader(self, batches: Iterable[Tensor]) -> "_Loader":
        """Reads these batches in order."""
        return _Loader(self._images, batches, readers=self._readers, is_pinned=self._is_pinned)


class _Loader:
    """Batches of images in order, with the indices that are being read."""

    def __init__(
        self, images: StoredImages, batches: Iterable[Tensor], *, readers: int, is_pinned: bool
    ) -> None:
        self.asked: deque[Tensor] = deque()
        self._batches: Iterator[Tensor] = iter(
            DataLoader(
                _Rows(images),
                sampler=self._watched(batches),
                batch_size=None,
                num_workers=readers,
                prefetch_factor=_AHEAD,
                pin_memory=is_pinned,
                multiprocessing_context=_processes(),
                generator=torch.Generator(),  # not the global one, which it would draw from
            )
        )

    def _watched(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        for indices_B in batches:
            self.asked.append(indices_B)
            yield indices_B

    def __iter__(self) -> Iterator[Tensor]:
        for images in self._batches:
            self.asked.popleft()
            yield images


class _Following:
    """What is being read of one stream."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._images = iter(loader)

    def expects(self, indices_B: Tensor) -> bool:
        asked = self._loader.asked
        return bool(asked) and torch.equal(asked[0], indices_B)

    def next(self) -> Tensor:
        return next(self._images)


class _Rows(Dataset[Tensor]):
    """Whole batches of images by their indices."""

    def __init__(self, images: StoredImages) -> None:
        self._images = images

    def __getitem__(self, indices_B: Tensor) -> Tensor:
        return torch.from_numpy(self._images[indices_B.numpy()])

    def __len__(self) -> int:
        return len(self._images)


def _processes() -> Any:
    """Processes that are forked from a server that has imported what they need.

    Not from this process, whose threads may hold locks or a GPU.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([SERVER])
    return context


def _endless(stream: Any, draw: Draw) -> Iterator[Tensor]:
    while True:
        yield draw(stream)
