"""How a learner computes: precision, memory layout, compiled and repeatable kernels.

None of it changes what a method is, but all of it changes numbers in their last digits or more, so
it is part of a search and of its digest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from tuneparts.core.config import Config

Precision = Literal["float32", "tf32", "bf16"]


class Runtime(Config):
    """How the passes of a learner are computed.

    Example:
        >>> Runtime(precision="bf16").precision
        'bf16'
    """

    precision: Precision = "float32"
    """`float32` has no shortcuts, on GPUs neither. `tf32` lets NVIDIA GPUs round the factors of
    products to 10 bits in training steps; elsewhere it is float32. `bf16` computes the net in
    bfloat16 by autocast in weight steps. Weights, optimisers, augmentation, losses, hyper steps,
    evidence, clustering and scores stay in float32 or better."""
    compile: bool = False
    """Compile the net by `torch.compile`: a minute at the start, fewer and larger kernels then."""
    channels_last: bool | None = None
    """Give images to the net with channels as the innermost dimension; None chooses."""
    deterministic: bool = False
    """Allow only kernels that give the same bits each time. Here a run repeats itself on a CPU in
    any case. On a GPU this promises the same bits for the same versions and the same model of GPU;
    where torch has no such kernel, the trial fails and names it."""

    @contextmanager
    def numerics(self, device: torch.device, *, is_training: bool) -> Iterator[None]:
        """Set what torch keeps for the whole process, and put it back after the block.

        Args:
            device: where the block computes.
            is_training: whether it is a training step, which may round as `precision` says.
        """
        cuda, matmul, cudnn = (
            device.type == "cuda",
            torch.backends.cuda.matmul,
            torch.backends.cudnn,
        )
        before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
        was_deterministic = torch.are_deterministic_algorithms_enabled()
        warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            if cuda:
                matmul.allow_tf32 = cudnn.allow_tf32 = is_training and self.precision == "tf32"
            if self.deterministic:
                # Read by cuBLAS when it first starts in a process.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                cudnn.benchmark = False
                torch.use_deterministic_algorithms(True)
            yield
        finally:
            if cuda:
                matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
            if self.deterministic:
                torch.use_deterministic_algorithms(was_deterministic, warn_only=warned_only)
