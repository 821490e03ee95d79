import numpy as np
import pytest
import torch

from tuneparts.augment.corruptions import corrupt
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.scores import class_scores
from tuneparts.data.task import Examples
from tuneparts.seeding import torch_generator
from tuneparts.training.members.corrupted import corrupted_scores

MEAN, STD = (0.4,), (0.3,)


def examples() -> tuple[np.ndarray, np.ndarray, DeviceExamples]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 1, 6, 6), dtype=np.uint8)
    labels = np.arange(12) % 3
    return (
        images,
        labels,
        DeviceExamples(Examples(images, labels), mean=MEAN, std=STD, device=torch.device("cpu")),
    )


def predict(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1)[:, :3]


def found(kinds: tuple, batch_size: int = 12) -> dict[str, float]:
    return corrupted_scores(
        predict, examples()[2], kinds, mean=MEAN, std=STD, seed=0, batch_size=batch_size
    )


def test_scores_are_means_over_kinds_and_severities_of_images_in_range() -> None:
    images, labels, _ = examples()
    x, y = torch.from_numpy(images).float() / 255, torch.from_numpy(labels)
    expected = []
    for kind in ("contrast", "gaussian_noise"):
        for severity in range(1, 6):
            generator = torch_generator(0, "corrupt", kind, severity)
            bad = corrupt(x, kind, severity, generator)
            expected.append(class_scores(predict((bad - MEAN[0]) / STD[0]), y)["nll"])
    assert found(("contrast", "gaussian_noise"))["corrupted/nll"] == pytest.approx(
        np.mean(expected), rel=1e-5
    )


def test_one_more_kind_changes_no_other() -> None:
    noise, blur = found(("gaussian_noise",)), found(("gaussian_blur",))
    both = found(("gaussian_blur", "gaussian_noise"))
    for name, value in both.items():
        assert value == pytest.approx((noise[name] + blur[name]) / 2)


def test_every_score_is_in_the_schema() -> None:
    from tuneparts.schema import lookup

    for name in found(("fog",), batch_size=5):
        assert lookup(name)
