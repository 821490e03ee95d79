"""What does an ImageNet net lose when its layers share half of its weights, or fewer?

Teterwak et al. (2024, supplementary): WRN-50-2 on ImageNet, 90 epochs of batches of 1024, SGD at
1.6 with momentum 0.9 and not Nesterov's, a tenth of the rate from epochs 30, 60 and 80 on, ten
epochs of warm-up, labels smoothed by 0.1, a decay of 1e-4 that spares norms, Inception's crops.
Their budgets were not at hand: here all, 50, 38 and 25 % of the net's 66.8 million shared weights,
of which 38 % are as many as a ResNet-50 has without sharing (`smaller`). Differences: the net is
torchvision's; crops are cut from images that were scaled to 224 pixels first; one GPU instead of
four, so norms see the whole batch; clusters are learnt in nine epochs, a tenth of training as on
CIFAR, and one to compare. The other scales run the same arms with a Wide ResNet on digits.
"""

from typing import Any

import tuneparts as tp
from studies.sharing import SEARCHED_NOTE, Sharing, apart

EPOCH = 1_281_167 // 1024
"""Steps."""
EPOCHS = 90
SEARCHED_EPOCHS = 100
"""Nine of training with hard sharing, one to compare gradients of layers, ninety more."""
RECIPE: dict[str, Any] = {
    "steps": EPOCHS * EPOCH,
    "interval": EPOCH,
    "batch_size": 1024,
    "optimiser": tp.Sgd(
        lr=1.6,
        weight_decay=1e-4,
        schedule="steps",
        milestones=(30 / 90, 60 / 90, 80 / 90),
        step_factor=0.1,
        warmup=10 / 90,
    ),
    "augmentation": {"resized_crop": 0.08, "flip": True},
    "train_on": "all",
    "decays_norms": False,
}
"""At `paper` scale."""


def search(scale: tp.Scale) -> tp.Search:
    setting = Sharing(scale)
    is_paper = setting.is_paper
    common = {**(RECIPE if is_paper else setting.training()), "label_smoothing": 0.1}
    net: Any = tp.nets.WideResNet(depth=16)
    smaller: Any = tp.nets.WideResNet(depth=10)
    stages, longer = setting.stages(unties=False), setting.steps()
    if is_paper:
        net = tp.nets.Imagenet(name="imagenet_wide_resnet50_2")
        smaller = tp.nets.Imagenet(name="imagenet_resnet50")
        stages = {"search": 9 / SEARCHED_EPOCHS, "analysis": 1 / SEARCHED_EPOCHS}
        longer = SEARCHED_EPOCHS * EPOCH
    arms: dict[str, tp.Method | tp.Arm] = {
        "whole": apart(**common, members=(net,)),
        "smaller": apart(**common, members=(smaller,)),
    }
    for percent in scale.pick(smoke=(50,), cpu=(50, 100), paper=(25, 38, 50, 100)):
        bins = setting.equal((net,), common=common, relative=percent / 100, when_short="merge")
        learnt = setting.searched(bins, stages=stages, steps=longer)
        arms[f"bins_{percent}"] = bins
        arms[f"gradient_{percent}"] = setting.noted(learnt, SEARCHED_NOTE)
    return setting.search(
        __doc__,
        arms,
        references=("whole",),
        steps=common["steps"],
        figures=("scores", "sweep:param.allocation.relative,test/accuracy"),
        **setting.at_paper({"data": tp.data.Imagenet(image_size=224)}),
    )
