"""What packing gains for a net, as far as it was measured, in words for who plans a search."""

from tuneparts.search.spec import Arm

GAINS = {"mlp": 2.6, "digits_cnn": 2.0, "mnist_cnn": 1.1}
"""Net -> trials trained in a second at 8 lanes, over those of single trials: `bench packed` on one
CPU thread. On GPUs small nets should gain more; that has not been measured."""
WORTH_IT = 1.3
"""Gain below which an arm is better left unpacked."""
_USUAL = 8
_FEWEST = 4
"""Trials of a seed from which on packing is worth a word."""


def gain_note(arm: Arm) -> str:
    """One sentence on packing an arm; empty where there is nothing to say."""
    net = getattr(getattr(arm.config, "net", None), "name", "")
    gain = GAINS.get(net)
    if arm.packed > 1:
        if gain is None:
            return (
                f"`{arm.name}` trains up to {arm.packed} trials of a seed together; what that "
                f"gains for `{net}` has not been measured."
            )
        if gain < WORTH_IT:
            return (
                f"`{arm.name}` trains up to {arm.packed} trials of a seed together, but `{net}` "
                f"gains nothing by it ({gain:g} times as many a second): leave `packed` out."
            )
        return (
            f"`{arm.name}` trains up to {arm.packed} trials of a seed together, about {gain:g} "
            f"times as many a second for `{net}` on one CPU thread."
        )
    if arm.config.why_unpacked or gain is None or arm.trials_per_seed < _FEWEST:
        return ""
    if gain < WORTH_IT:
        return f"`{arm.name}` is not packed: `{net}` gains too little by it ({gain:g} times)."
    return (
        f"`{arm.name}` could train {_USUAL} trials of a seed together, about {gain:g} times as "
        f"many a second for `{net}` on one CPU thread: `--set {arm.name}.packed={_USUAL}`."
    )
