"""What a net is given in place of an example: draws of the augmentation as images.

Legend: E examples, D draws of each, C channels, H height, W width.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tuneparts.core import seeding
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.task import Examples, Task
from tuneparts.hypers.config import HypersConfig


def augmented_pixels(
    config: HypersConfig, inputs_ECHW: Any, task: Task, *, num: int, seed: int
) -> npt.NDArray[np.uint8]:
    """Draw the augmentation of each example, with the code that training uses.

    Args:
        config: The hypers, at the values to draw with.
        inputs_ECHW: Examples as stored, uint8.
        task: The task whose normalisation training used.
        num: Draws of each example (D).
        seed: Of the draws.

    Returns:
        Images (E, D, H, W, C).
    """
    examples = Examples(np.asarray(inputs_ECHW), np.zeros(len(inputs_ECHW), dtype=np.int64))
    device = torch.device("cpu")
    batch = DeviceExamples(examples, mean=task.mean, std=task.std, device=device)
    x_ECHW, _ = batch.take(torch.arange(len(inputs_ECHW)))
    seen: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        """Stands for the net: remembers what it is given."""
        seen.append(x)
        return x.flatten(1)

    many = config.replaced({"samples": num, "eval_samples": num})
    hypers = many.build(learnable=False, net=torch.nn.Identity(), in_shape=task.in_shape)
    generator = seeding.torch_generator(seed, "report samples")
    with torch.no_grad():
        hypers.predict(keep, x_ECHW, generator=generator, training=True)
    x = np.concatenate([part.numpy() for part in seen]).astype(np.float64)
    shape = (1, -1, 1, 1)
    raw = x * np.asarray(task.std).reshape(shape) + np.asarray(task.mean).reshape(shape)
    pixels = np.clip(np.rint(255 * raw), 0, 255).astype(np.uint8)
    return np.moveaxis(pixels.reshape(len(inputs_ECHW), -1, *pixels.shape[1:]), 2, -1)
