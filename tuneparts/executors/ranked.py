"""A learner whose batches several processes share: one trial on several GPUs of a machine.

This process is rank 0. It starts the others, tells them when to train, and is the only one that
reports and writes checkpoints. All ranks hold the whole state and take the same steps, see
`tuneparts.training.ranks`.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tuneparts.errors import ClusterError, ConfigError, WorkerError
from tuneparts.search.code import Code
from tuneparts.search.spec import method_config
from tuneparts.training import checkpoint
from tuneparts.training.artifacts import Columns
from tuneparts.training.learner import Context, Learner
from tuneparts.training.ranks import Ranks

_TIMEOUT = timedelta(minutes=10)
"""For one message between ranks: one may evaluate while another waits already."""
_REST = 2.0
"""Seconds in which a rank that failed is gone."""
_ALL_LIVE = "all processes of a trial on several GPUs must live"


@dataclass(frozen=True)
class _Place:
    """What a rank needs to become one."""

    config: Mapping[str, Any]
    context: Context
    code: Code
    ranks: Ranks
    meeting: str
    """A file by which the ranks find each other."""
    threads: int


class RankedLearner:
    """A learner in several processes, to its owner like any other.

    Args:
        config: of the method, as plain values.
        context: of this process.
        size: number of ranks.
        code: what the search brings along.
        threads: of torch, for all ranks together.
    """

    def __init__(
        self, config: Mapping[str, Any], context: Context, *, size: int, code: Code, threads: int
    ) -> None:
        if context.device.type == "cuda" and torch.cuda.device_count() < size:
            raise ConfigError(
                f"a trial on {size} GPUs needs to see them, but this process sees "
                f"{torch.cuda.device_count()}. Lower `resources.gpus`."
            )
        folder = tempfile.TemporaryDirectory(prefix="tuneparts-ranks-")
        place = _Place(
            config, context, code, Ranks(0, size), str(Path(folder.name) / "meeting"),
            max(1, threads // size),
        )  # fmt: skip
        # Not forked: a process with a CUDA context cannot be.
        spawn = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(1, size):
            ours, theirs = spawn.Pipe()
            other = replace(place, ranks=Ranks(rank, size), context=replace(context, tasks=None))
            process = spawn.Process(target=_serve, args=(theirs, other))
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)
        self._end = weakref.finalize(self, _end, self._processes, self._lines, folder)
        try:
            self._hear()  # they have started
            _start(place)
            self._own = _build(place)
        except BaseException:
            self._end()
            raise

    @property
    def finished(self) -> bool:
        return self._own.finished

    @property
    def passes(self) -> int:
        return self._own.passes

    def advance(self) -> Mapping[str, float]:
        self._tell("advance")
        try:
            metrics = self._own.advance()
        except RuntimeError:
            if any(_is_gone(process) for process in self._processes):
                self._hear()  # messages between ranks fail where one is gone; it says why, or died
            raise
        self._hear()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tell("load", checkpoint.to_bytes(state))
        self._own.load_state_dict(state)
        self._hear()

    def final_module(self) -> nn.Module:
        return self._own.final_module()

    def artifacts(self) -> Mapping[str, Columns]:
        return self._own.artifacts()

    def close(self) -> None:
        """End the other ranks."""
        self._end()

    def _tell(self, *message: Any) -> None:
        try:
            for line in self._lines:
                line.send(message)
        except OSError as error:
            raise ClusterError(f"{_ALL_LIVE}, but one died: {error}.") from error

    def _hear(self) -> None:
        """Wait until all others have done what they were told."""
        for line in self._lines:
            try:
                failure = line.recv()
            except (EOFError, OSError) as error:
                raise ClusterError(f"{_ALL_LIVE}, but one died.") from error
            if failure is not None:
                raise WorkerError(f"all ranks of a trial do the same, but one failed: {failure}")


def _start(place: _Place) -> None:
    """Join the other ranks."""
    torch.set_num_threads(place.threads)
    if place.context.device.type == "cuda":
        torch.cuda.set_device(place.ranks.rank)
    dist.init_process_group(
        "nccl" if place.context.device.type == "cuda" else "gloo",
        init_method=f"file://{place.meeting}",
        rank=place.ranks.rank,
        world_size=place.ranks.size,
        timeout=_TIMEOUT,
    )


def _build(place: _Place) -> Learner:
    kind = place.context.device.type
    device = torch.device(kind, place.ranks.rank) if kind == "cuda" else place.context.device
    context = replace(place.context, ranks=place.ranks, device=device)
    return method_config(place.config).build(context)


def _serve(line: Connection, place: _Place) -> None:
    """Be a rank: do what rank 0 says, until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_rank_0, daemon=True).start()
    with place.code.importable():
        line.send(None)
        _start(place)
        learner = _build(place)
        while True:
            try:
                what, *values = line.recv()
            except (EOFError, OSError):
                os._exit(0)
            try:
                if what == "advance":
                    learner.advance()
                else:
                    learner.load_state_dict(checkpoint.from_bytes(values[0]))
            except Exception:  # rank 0 says it to whoever asked
                line.send(traceback.format_exc())
                os._exit(1)  # the others wait for it otherwise
            else:
                line.send(None)


def _is_gone(process: BaseProcess) -> bool:
    process.join(_REST)  # its connections end a little before it does
    return not process.is_alive()


def _die_with_rank_0() -> None:
    rank_0 = multiprocessing.parent_process()
    assert rank_0 is not None
    rank_0.join()
    os._exit(1)


def _end(
    processes: Sequence[BaseProcess],
    lines: Sequence[Connection],
    folder: "tempfile.TemporaryDirectory[str]",
) -> None:
    for line in lines:
        line.close()
    for process in processes:
        process.kill()
        process.join()
    if dist.is_initialized():
        dist.destroy_process_group()
    folder.cleanup()
