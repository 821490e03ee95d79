"""The words with a special sense here, for reports, `--help` and `docs/glossary.md`."""

STEP_IN_SHORT = "a step is one forward-backward over one batch, not an epoch"
"""For captions: explains the word where a number of steps is shown first."""

GLOSSARY = {
    "search": "A question with the arms that compete to answer it, written down in one search "
    "file; running it gives one table and one report.",
    "arm": "One competitor of a search: a method with the space of configurations that it draws "
    "from and a budget.",
    "seed": "The number from which everything random of an arm is drawn, its data too, for all "
    "arms the same; each arm runs all its trials once per seed, and means, standard errors and "
    "intervals are over seeds.",
    "step": "One forward-backward over one batch, not an epoch; costs are counted in steps because "
    "they do not depend on the machine.",
    "source arm": "The arm whose best hyperparameters or configuration another arm trains at; the "
    "total cost of that other arm includes the cost of its source.",
    "chunk": "A part of the training data; partitioned training shows each subnetwork only the "
    "first chunks, so that the next chunk measures how well it generalises.",
    "partition": "A part of the weights of a net; the subnetwork with partitions 1 to k learns "
    "from chunks 1 to k.",
    "scale": "The size at which a search runs: `smoke` to see that it works, `cpu` for an answer "
    "on one machine, `paper` for the published setting.",
}


def define(word: str) -> str:
    """A word with its definition as one sentence, for help texts and tips."""
    return f"{word}: {GLOSSARY[word]}"
