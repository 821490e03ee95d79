"""Predictions for a whole part of the data, and their scores.

Published corruptions of test images are scored at the end of every method that trains by the loop,
as means over kinds and severities.

Legend: N examples, K outputs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Target
from tuneparts.data.variants import CorruptedTest

EVAL_BATCH = 500
"""Examples at a time, unless they are averaged over several samples each."""


@torch.no_grad()
def outputs_of(
    predict: Callable[[Tensor], Tensor], examples: DeviceExamples, *, batch_size: int = EVAL_BATCH
) -> tuple[Tensor, Tensor]:
    """Outputs (N, K) and labels (N, ...) of all examples, in order."""
    parts = [(predict(x), y) for x, y in examples.iterate(batch_size)]
    return torch.cat([outputs for outputs, _ in parts]), torch.cat([y for _, y in parts])


def evaluate(
    predict: Callable[[Tensor], Tensor],
    examples: DeviceExamples,
    split: str,
    *,
    target: Target,
    batch_size: int = EVAL_BATCH,
) -> dict[str, float]:
    """All scores of a split under their schema names (`val/nll`, ...)."""
    found = target.scores(*outputs_of(predict, examples, batch_size=batch_size))
    return {f"{split}/{name}": value for name, value in found.items()}


@torch.no_grad()
def published_scores(
    predict: Callable[[Tensor], Tensor],
    corrupted: CorruptedTest,
    *,
    target: Target,
    device: torch.device,
    batch_size: int,
) -> dict[str, float]:
    """Scores under `corrupted/...`, each a mean over all conditions, which count alike."""
    labels_N = torch.from_numpy(corrupted.labels).to(device)

    def scores(kind: str, severity: int) -> dict[str, float]:
        images = torch.from_numpy(corrupted.images(kind, severity))
        outputs = [predict(part.to(device)) for part in torch.split(images, batch_size)]
        return target.scores(torch.cat(outputs), labels_N)

    rows = [scores(*condition) for condition in corrupted.conditions]
    return {f"corrupted/{name}": sum(row[name] for row in rows) / len(rows) for name in rows[0]}
