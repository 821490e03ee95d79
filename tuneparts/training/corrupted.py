"""Scores on published corruptions of the test images: the mean over kinds and severities.

Every method that trains by the loop has them at the end, where its data has such images.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tuneparts.data.target import Target
from tuneparts.data.variants import CorruptedTest


@torch.no_grad()
def published_scores(
    predict: Callable[[Tensor], Tensor],
    corrupted: CorruptedTest,
    *,
    target: Target,
    device: torch.device,
    batch_size: int,
) -> dict[str, float]:
    """Scores under `corrupted/...`, each a mean over all conditions, which count alike.

    Args:
        predict: from pixels of 0 to 255 to outputs (B, K).
        corrupted: the images.
        target: by which they are scored.
        device: where `predict` computes.
        batch_size: images at a time.
    """
    labels_N = torch.from_numpy(corrupted.labels).to(device)

    def scores(kind: str, severity: int) -> dict[str, float]:
        images = torch.from_numpy(corrupted.images(kind, severity))
        outputs = [predict(part.to(device)) for part in torch.split(images, batch_size)]
        return target.scores(torch.cat(outputs), labels_N)

    rows = [scores(*condition) for condition in corrupted.conditions]
    return {f"corrupted/{name}": sum(row[name] for row in rows) / len(rows) for name in rows[0]}
