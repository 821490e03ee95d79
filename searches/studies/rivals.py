"""Arms of SSN, MSDNet and HNE, which Teterwak et al. (2024) compare with, at each scale.

SSN has the members and the budget of the SuperWeights. MSDNet is that of the paper at `paper` scale
(16 blocks with 12, 24 and 48 channels, 300 epochs, a tenth of the rate from a half and from three
quarters on, decay 1e-4), but with batches of 128 where the authors have 64. HNE is a tree of the
comparison's own nets with 16 leaves; the paper copied figures of a changed ResNet-50.
"""

from typing import Any

from studies.sharing import EPOCH, Sharing, wide_resnets
from tuneparts.methods.ensembles.config import Hne, MsdNetEnsemble
from tuneparts.methods.superweights.config import Ssn
from tuneparts.nets import MsdNet, NetConfig
from tuneparts.search.arm import Arm


def ssn(
    setting: Sharing,
    fields: dict[str, Any],
    *,
    members: tuple[NetConfig, ...],
    budget: int,
    name: str = "ssn",
) -> Arm:
    """Members whose layers read from banks of one budget.

    Args:
        setting: scale.
        fields: of the training of the arms that it is compared with.
        members: their nets.
        budget: weights of all banks.
        name: of the arm.
    """
    return setting.arm(name, Ssn(**fields, members=members, budget=budget))


def msdnet(setting: Sharing, fields: dict[str, Any]) -> Arm:
    """One net with exits; `fields` as in `ssn`."""
    sizes = setting.scale.pick(
        smoke=MsdNet(exits=2, base=1, step=1, channels=8, growth=4, exit_channels=32),
        cpu=MsdNet(exits=5, exit_channels=64),
        paper=MsdNet(exits=16, growth=12),
    )
    config = MsdNetEnsemble(**fields, sizes=sizes)
    published = {
        "steps": 300 * EPOCH,
        "optimiser.milestones": (0.5, 0.75),
        "optimiser.step_factor": 0.1,
        "optimiser.weight_decay": 1e-4,
        "augmentation.cutout": 0,
    }
    changes = published if setting.is_paper else {}
    return setting.arm("msdnet", config.replaced(changes), note="published with 300 epochs")


def hne(setting: Sharing, fields: dict[str, Any]) -> Arm:
    """A tree of nets; `fields` as in `ssn`."""
    (net,) = setting.scale.pick(
        smoke=wide_resnets((10, 1)), cpu=wide_resnets((16, 1)), paper=wide_resnets((28, 3))
    )
    levels = setting.scale.pick(smoke=1, cpu=2, paper=4)
    return setting.arm("hne", Hne(**fields, net=net, levels=levels))
