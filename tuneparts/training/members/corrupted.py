"""Scores on corrupted test data: the mean over kinds and five severities."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tuneparts import seeding
from tuneparts.augment.corruptions import SEVERITIES, Kind, corrupt
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.scores import class_scores
from tuneparts.training.corrupted import mean_scores


def corrupted_scores(
    predict: Callable[[Tensor], Tensor],
    examples: DeviceExamples,
    kinds: Sequence[Kind],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
    batch_size: int,
) -> dict[str, float]:
    """Accuracy, nll, ece and brier under `corrupted/...`, each a mean over all conditions.

    Every condition has a random stream of its own, so that one more kind changes no other.

    Args:
        predict: from normalised images to logits (B, K).
        examples: images.
        kinds: which corruptions.
        mean: per channel, that the images were normalised by.
        std: likewise.
        seed: of the streams; the same for all methods that are compared.
        batch_size: images at a time.
    """
    found: list[dict[str, float]] = []
    for kind in kinds:
        for severity in SEVERITIES:
            generator = seeding.torch_generator(
                seed, "corrupt", kind, severity, device=examples.device
            )
            parts = [
                (predict(x), y)
                for x, y in _corrupted(
                    examples, kind, severity, mean=mean, std=std, generator=generator,
                    batch_size=batch_size,
                )
            ]  # fmt: skip
            logits_NK, labels_N = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
            found.append(class_scores(logits_NK, labels_N))
    return mean_scores(found)


def _corrupted(
    examples: DeviceExamples,
    kind: Kind,
    severity: int,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    generator: torch.Generator,
    batch_size: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    for x_BCHW, y_B in examples.iterate(batch_size):
        mean_C, std_C = (x_BCHW.new_tensor(value).view(1, -1, 1, 1) for value in (mean, std))
        image_BCHW = (x_BCHW * std_C + mean_C).clamp(0, 1)
        image_BCHW = corrupt(image_BCHW, kind, severity, generator)
        yield (image_BCHW - mean_C) / std_C, y_B
