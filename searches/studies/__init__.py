"""What several searches share: settings, and the arms of a comparison.

A search file can import the modules next to it: `from studies.fixing import Fixing`.
"""

from collections.abc import Mapping

import tuneparts as tp


def after_question(docstring: str | None) -> str:
    """The notes of a search: what its file says after the question."""
    return (docstring or "").partition("\n\n")[2]


def on_gpus(
    scale: tp.Scale, share: float, arms: Mapping[str, tp.Method | tp.Arm]
) -> dict[str, tp.Arm]:
    """The arms, where each trial reserves this share of a GPU at `paper` scale."""
    whole = {n: arm if isinstance(arm, tp.Arm) else tp.Arm(config=arm) for n, arm in arms.items()}
    resources = tp.Resources(gpus=share if scale is tp.Scale.PAPER else 0)
    return {n: arm.model_copy(update={"resources": resources}) for n, arm in whole.items()}
