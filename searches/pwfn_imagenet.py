"""How small do published ImageNet nets become, and what does it cost?

Subia-Waud & Dasmahapatra (2023) compress ResNet-18, -34 and -50, DenseNet-161 and two DeiT from
pretrained weights: 27.05 epochs of batch 128 in ten rounds, SGD at 1e-3, alpha 2^-11. `paper` scale
does so with torchvision's weights, which must be on the machine (`torchvision:resnet18` names the
file that is missing), and with `released` once more by the habits of their code. DeiT's weights
come with timm, which is no dependency; your own net takes them through `pretrained`. Our images are
scaled to their shorter side and cropped, theirs squashed. The other scales run on digits.
"""

import tuneparts as tp
from studies.fixing import Fixing

STEPS = round(27.05 * 9009)
"""Epochs of 90 % of the training images in batches of 128."""


def search(scale: tp.Scale) -> tp.Search:
    if scale is not tp.Scale.PAPER:
        setting = Fixing(scale, converged=True)
        careful = setting.config(sigma={"exposure": 1.0})
        released = setting.config(sigma={"exposure": 1.0}, habits="released")
        return setting.search(__doc__, {"careful": careful, "released": released})
    arms = {name: _arm(name) for name in ("resnet18", "resnet34", "resnet50", "densenet161")}
    return Fixing(scale).search(
        __doc__,
        arms | {"resnet18_released": _arm("resnet18", habits="released")},
        data=tp.data.Imagenet(num_val=50_000),
        steps=STEPS,
        interval=round(27.05 * 9009 / 40),
        batch_size=128,
        optimiser=tp.Adam(),
        seeds=1,
        figures=("rounds:val/accuracy", "rounds:size/entropy"),
    )


def _arm(name: str, habits: str = "careful") -> tp.Method:
    return tp.Pwfn(
        net=tp.nets.Imagenet(name=f"imagenet_{name}"),
        pretrained=f"torchvision:{name}",
        pretrain=0,
        augmentation={"crop_padding": 16, "flip": True},
        habits=habits,
    )
