"""A whole split as tensors on the device; batches are taken by index and normalised there.

Images that stay on disk are read ahead of training, in other processes. A copy of the
stream of batches runs ahead and gives the indices that will be asked for. What was read ahead is
used only where it is what is asked for: a stream that jumps, as at a resume, is read from where it
then is, and nothing that is read depends on how far ahead the readers were.

Shapes: B batch, C channels, H height, W width, D features, N examples.
"""

import copy
import multiprocessing
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tuneparts.core import settings
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Examples, StoredImages

Draw = Callable[[Any], Tensor]
"""Takes the next batch of indices (B,) from a stream."""
SERVER = "tuneparts.data.reader"
"""What the server of reading processes imports. It would not say that there is no such module."""
_AHEAD = 2  # batches that every process reads ahead
_FEW_BATCHES = 8  # up to so many are read by this process: others take seconds to start


class _ReadAhead:
    """Reads images of streams ahead, in `readers` processes for each; pinned to copy to a GPU."""

    def __init__(self, images: StoredImages, *, readers: int, is_pinned: bool) -> None:
        self.loader = partial(_Loader, images, readers=readers, is_pinned=is_pinned)
        self._images = images
        self._loaders: dict[int, _Loader] = {}

    def take(self, indices_B: Tensor, stream: Any, draw: Draw) -> Tensor:
        """The images at these indices, which the stream has just drawn: uint8 (B, C, H, W)."""
        key = id(stream)
        if key not in self._loaders:
            weakref.finalize(stream, self._loaders.pop, key, None)
        elif self._loaders[key].expects(indices_B):
            return next(self._loaders[key])
        ahead = copy.deepcopy(stream)
        self._loaders[key] = self.loader(batches=(draw(ahead) for _ in count()))
        return torch.from_numpy(self._images[indices_B.numpy()])


class _Loader(Iterator[Tensor]):
    """Batches of images in order, with the indices that are being read."""

    def __init__(
        self, images: StoredImages, *, batches: Iterable[Tensor], readers: int, is_pinned: bool
    ) -> None:
        # From a server that has imported what readers need, not from this process, whose threads
        # may hold locks or a GPU.
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([SERVER])
        self._asked: deque[Tensor] = deque()

        def watched() -> Iterator[npt.NDArray[np.int64]]:
            for indices_B in batches:
                self._asked.append(indices_B)
                yield indices_B.numpy()

        loader: DataLoader[Tensor] = DataLoader(
            images,  # type: ignore[arg-type]  # whole batches of it, by their indices
            sampler=watched(),
            batch_size=None,
            num_workers=readers,
            prefetch_factor=_AHEAD,
            pin_memory=is_pinned,
            multiprocessing_context=processes,
            generator=torch.Generator(),  # not the global one, which it would draw from
        )
        self._batches: Iterator[Tensor] = iter(loader)

    def expects(self, indices_B: Tensor) -> bool:
        return bool(self._asked) and torch.equal(self._asked[0], indices_B)

    def __next__(self) -> Tensor:
        images = next(self._batches)
        self._asked.popleft()
        return images


class DeviceExamples:
    """Examples as tensors on a device, uint8 until a batch is taken.

    Images become float32 `(x / 255 - mean) / std`, real numbers `(x - mean) / std`.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
    ) -> None:
        inputs = examples.inputs
        width = inputs.shape[1]
        if len(mean) != len(std) or len(mean) not in {1, width} or min(std) <= 0:
            raise ConfigError(
                f"mean {tuple(mean)} and std {tuple(std)}: must have 1 or {width} entries each, "
                "and std positive ones."
            )
        self.device = device
        self._inputs, self._ahead = torch.empty(0), None
        self._stored = inputs if isinstance(inputs, StoredImages) else None
        if not isinstance(inputs, StoredImages):
            self._inputs = _tensor(inputs).to(device)
        else:
            is_gpu, readers = device.type == "cuda", settings.current().readers
            if readers is None:
                readers = (torch.get_num_threads() - 1) * is_gpu
            self._ahead = _ReadAhead(inputs, readers=readers, is_pinned=is_gpu) if readers else None
        self._labels_N = _tensor(examples.labels).to(device)
        self._is_image = inputs.dtype == np.uint8
        self._is_whole = inputs.dtype == np.int64
        per_channel = (1, len(mean), *[1] * (len(inputs.shape) - 2))
        self._mean = torch.tensor(mean, dtype=torch.float32, device=device).view(per_channel)
        self._std = torch.tensor(std, dtype=torch.float32, device=device).view(per_channel)

    def __len__(self) -> int:
        return len(self._labels_N)

    def take(
        self, indices_B: Tensor, *, of: Any = None, draw: Draw = lambda stream: stream.next()
    ) -> tuple[Tensor, Tensor]:
        """Examples at these indices, and labels; what `of` will `draw` next is read ahead."""
        on_device_B = indices_B.to(self.device)
        y_B = self._labels_N[on_device_B]
        if self._stored is None:
            return self._normalised(self._inputs[on_device_B]), y_B
        if self._ahead is not None and of is not None:
            raw = self._ahead.take(indices_B, of, draw)
        else:
            raw = torch.from_numpy(self._stored[indices_B.cpu().numpy()])
        return self._normalised(raw.to(self.device, non_blocking=True)), y_B

    def iterate(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every example once, in order, in batches as from `take`; the last one may be smaller."""
        parts = [slice(i, i + batch_size) for i in range(0, len(self), batch_size)]

        def read() -> Iterator[Tensor]:
            if self._ahead is not None and len(parts) > _FEW_BATCHES:
                indices = torch.arange(len(self))
                yield from self._ahead.loader(batches=(indices[rows] for rows in parts))
                return
            for rows in parts:
                stored = self._stored
                yield self._inputs[rows] if stored is None else torch.from_numpy(stored[rows])

        for rows, raw in zip(parts, read(), strict=True):
            yield self._normalised(raw.to(self.device)), self._labels_N[rows].clone()

    def _normalised(self, raw: Tensor) -> Tensor:
        if self._is_whole:
            return raw.clone()
        x = raw.to(torch.float32).div_(255) if self._is_image else raw.clone()
        return x.sub_(self._mean).div_(self._std)


_KEPT: dict[tuple[Any, ...], DeviceExamples] = {}
"""What `kept_on_device` made, by the identity of its examples."""


def kept_on_device(
    examples: Examples, *, mean: Sequence[float], std: Sequence[float], device: torch.device
) -> DeviceExamples:
    """Examples on a device, shared by the learners of this process while `examples` exist."""
    key = (id(examples), tuple(mean), tuple(std), str(device))
    if key not in _KEPT:
        _KEPT[key] = DeviceExamples(examples, mean=mean, std=std, device=device)
        weakref.finalize(examples, _KEPT.pop, key, None)  # before its id is given to another
    return _KEPT[key]


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    # Twice reshaped, so that an axis of length 1 has the usual stride: kernels choose by strides,
    # and an array that came from another process would give other bits than the one that was sent.
    contiguous = np.ascontiguousarray(array).reshape(-1).reshape(array.shape)
    if not contiguous.flags.writeable:
        # torch warns about read-only arrays, and a copy would undo the sharing between processes;
        # the tensors are only ever indexed. So let numpy take the memory to be writable.
        about = contiguous.__array_interface__
        about = {**about, "data": (about["data"][0], False)}
        contiguous = np.asarray(SimpleNamespace(__array_interface__=about, owner=contiguous))
    return torch.from_numpy(contiguous)
