"""What does an ImageNet net lose when its layers share half of its weights, or fewer?

Parameter allocation search on ImageNet, by the recipe that the paper prints.
"""

from typing import Any

from studies.sharing import INITIALISATION, Sharing, apart
from tuneparts.data.config import Data
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import Imagenet, WideResNet
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Teterwak et al. (2024, supplementary): WRN-50-2 on ImageNet, 90 epochs of batches of 1024, SGD at
1.6 with momentum 0.9 and not Nesterov's, a tenth of the rate from epochs 30, 60 and 80 on, ten
epochs of warm-up, labels smoothed by 0.1, a decay of 1e-4 that spares norms, Inception's crops.
Their budgets were not at hand: here all, 50, 38 and 25 % of the net's 66.8 million shared weights,
of which 38 % are as many as a ResNet-50 has without sharing (`smaller`). Differences: the net is
torchvision's; crops are cut from images that were scaled to 224 pixels first; one GPU instead of
four, so norms see the whole batch; clusters are learnt in nine epochs, a tenth of training as on
CIFAR, and one to compare. The other scales run the same arms with a Wide ResNet on digits, to try
the search.
"""
EPOCH = 1_281_167 // 1024
"""Steps."""
EPOCHS = 90
SEARCHED_EPOCHS = 100
"""Nine of training with hard sharing, one to compare gradients of layers, ninety more."""
NOTE = "epochs of search and analysis besides the training"


def search(scale: Scale) -> Search:
    """The whole net, a smaller one, and two ways to share at each budget."""
    setting = Sharing(scale=scale)
    is_paper = setting.is_paper
    common = _recipe() if is_paper else {**setting.training(), "label_smoothing": 0.1}
    net: Any = Imagenet(name="imagenet_wide_resnet50_2") if is_paper else WideResNet(depth=16)
    smaller: Any = Imagenet(name="imagenet_resnet50") if is_paper else WideResNet(depth=10)
    arms: list[Arm] = [
        setting.arm("whole", apart(**common, members=(net,))),
        setting.arm("smaller", apart(**common, members=(smaller,))),
    ]
    for percent in scale.pick(smoke=(50,), cpu=(50, 100), paper=(25, 38, 50, 100)):
        bins = SuperWeights(
            **common,
            members=(net,),
            allocation={"relative": percent / 100, "when_short": "merge", **INITIALISATION},
            sharing={"clusters": "depth", "coefficients": "private"},
        )
        searched = {"search": 9 / SEARCHED_EPOCHS, "analysis": 1 / SEARCHED_EPOCHS}
        learnt = bins.replaced(
            {
                "stages": searched if is_paper else setting.stages(unties=False),
                "sharing.clusters": "gradient",
                "steps": SEARCHED_EPOCHS * EPOCH if is_paper else setting.steps(),
            }
        )
        arms += [
            setting.arm(f"bins_{percent}", bins),
            setting.arm(f"gradient_{percent}", learnt, note=NOTE),
        ]
    published: dict[str, Any] = {"data": Data(name="imagenet", image_size=224)} if is_paper else {}
    return setting.search(
        name="superweights_npas_imagenet",
        question="What does an ImageNet net lose when its layers share fewer weights?",
        notes=NOTES,
        references=("whole",),
        steps=EPOCHS * EPOCH if is_paper else setting.steps(),
        arms=tuple(arms),
        figures=("scores", "sweep:param.allocation.relative,test/accuracy"),
        **published,
    )


def _recipe() -> dict[str, Any]:
    """Fields of every config at `paper` scale."""
    return {
        "steps": EPOCHS * EPOCH,
        "interval": EPOCH,
        "batch_size": 1024,
        "optimiser": {
            "kind": "sgd",
            "lr": 1.6,
            "weight_decay": 1e-4,
            "schedule": "steps",
            "milestones": (30 / 90, 60 / 90, 80 / 90),
            "step_factor": 0.1,
            "warmup": 10 / 90,
        },
        "augmentation": {"resized_crop": 0.08, "flip": True},
        "train_on": "all",
        "label_smoothing": 0.1,
        "decays_norms": False,
    }
