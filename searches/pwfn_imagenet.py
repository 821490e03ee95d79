"""How small do published ImageNet nets become, and what does it cost?

At `paper` scale each net starts from its published weights, by the published schedule.
"""

from typing import Any

from studies.fixing import Fixing
from tuneparts.data.config import Data
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.nets import Imagenet
from tuneparts.search.arm import Arm
from tuneparts.search.spec import Scale, Search

NOTES = """
Subia-Waud & Dasmahapatra (2023) compress ResNet-18, -34 and -50, DenseNet-161 and two DeiT from
pretrained weights: 27.05 epochs of batch 128 in ten rounds, SGD at 1e-3, alpha 2^-11. `paper` scale
does so with torchvision's weights, which must be on the machine (`torchvision:resnet18` names the
file that is missing), and with `released` once more by the habits of their code. Differences:
DeiT's weights come with timm, which is no dependency here; a net of one's own takes them through
`pretrained`. Our images are scaled to their shorter side and cropped, theirs squashed. The other
scales run the same arms on digits, to try the search.
"""

_STEPS = 27.05 * 9009
"""Epochs of 90 % of the training images in batches of 128."""


def search(scale: Scale) -> Search:
    """One arm for each net, and one with the habits of the released code."""
    if scale is not Scale.PAPER:
        setting = Fixing(scale=scale, converged=True)
        small = [setting.arm("careful", setting.config(sigma={"exposure": 1.0}))]
        small.append(
            setting.arm("released", setting.config(sigma={"exposure": 1.0}, habits="released"))
        )
        return setting.search(
            name="pwfn_imagenet", question=_QUESTION, notes=NOTES, arms=tuple(small)
        )
    setting = Fixing(scale=scale)
    arms = [_arm(setting, name) for name in ("resnet18", "resnet34", "resnet50", "densenet161")]
    arms.append(_arm(setting, "resnet18", suffix="_released", habits="released"))
    return setting.search(
        name="pwfn_imagenet",
        question=_QUESTION,
        notes=NOTES,
        data=Data(name="imagenet", num_val=50_000),
        steps=round(_STEPS),
        seeds=(0,),
        arms=tuple(arms),
        figures=("rounds:val/accuracy", "rounds:size/entropy"),
    )


_QUESTION = "How small do published nets become, and what does it cost?"


def _arm(setting: Fixing, name: str, *, suffix: str = "", **fields: Any) -> Arm:
    config = Pwfn(
        net=Imagenet(name=f"imagenet_{name}"),
        pretrained=f"torchvision:{name}",
        pretrain=0,
        steps=round(_STEPS),
        interval=round(_STEPS / 40),
        batch_size=128,
        augmentation={"crop_padding": 16, "flip": True},
        **fields,
    )
    return setting.arm(f"{name}{suffix}", config)
