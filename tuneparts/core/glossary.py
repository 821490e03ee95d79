"""The ten words with a sense of their own here, for reports, `--help` and `docs/glossary.md`."""

STEP_IN_SHORT = "a step is one forward-backward over one batch, not an epoch"
"""For captions: stands wherever a number of steps is shown first."""

GLOSSARY = {
    "search": "A question with the arms that compete to answer it, written down in one search "
    "file; running it gives one table and one report.",
    "arm": "One competitor of a search: a method with the space of configurations that it draws "
    "from and a budget.",
    "trial": "One training run from start to end: one sampled configuration of one arm under one "
    "seed.",
    "replicate": "A repetition of a whole arm, with all its trials, under another seed, which "
    "draws the data anew too, for all arms the same; means and standard errors are taken over "
    "replicates, and tables call them seeds.",
    "hyper": "A value besides the weights that a method is given or learns, such as the range of "
    "rotations or a dropout rate; short for hyperparameter.",
    "step": "One forward-backward over one batch, not an epoch; costs are counted in steps because "
    "they do not depend on the machine.",
    "chunk": "A part of the training data; partitioned training shows each subnetwork only the "
    "first chunks, so that the next chunk measures how well it generalises.",
    "partition": "A part of the weights of a net; the subnetwork with partitions 1 to k learns "
    "from chunks 1 to k.",
    "scale": "The size at which a search runs: `smoke` to see that it works, `cpu` for an answer "
    "on one machine, `paper` for the published setting.",
    "leader": "The arm that another arm follows: the follower starts from the hypers that its "
    "leader found, and its leader's cost is part of its bill.",
}


def define(word: str) -> str:
    """A word with its definition as one sentence, for help texts and tips."""
    return f"{word}: {GLOSSARY[word]}"
