"""Scores of a predictor on a whole split."""

from collections.abc import Callable

import torch
from torch import Tensor

from tuneparts.data.device_examples import DeviceExamples
from tuneparts.training.scores import scores

EVAL_BATCH = 500


@torch.no_grad()
def logits_of(
    predict: Callable[[Tensor], Tensor], examples: DeviceExamples, *, batch_size: int = EVAL_BATCH
) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and labels (N,) of all examples, in order."""
    parts = [(predict(x), y) for x, y in examples.iterate(batch_size)]
    return torch.cat([logits for logits, _ in parts]), torch.cat([y for _, y in parts])


def evaluate(
    predict: Callable[[Tensor], Tensor],
    examples: DeviceExamples,
    split: str,
    *,
    batch_size: int = EVAL_BATCH,
) -> dict[str, float]:
    """All scores of a split under their schema names (`val/nll`, ...)."""
    logits_NK, labels_N = logits_of(predict, examples, batch_size=batch_size)
    return {f"{split}/{name}": value for name, value in scores(logits_NK, labels_N).items()}
