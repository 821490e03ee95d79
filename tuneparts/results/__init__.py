"""tuneparts from Python: run a search, continue it, read what it found.

The command line is built on the same calls.

Example:
    >>> import tuneparts
    >>> small = {"scale": "smoke", "arms": ["none"], "seeds": [0]}
    >>> results = tuneparts.run("rotated_digits", **small, workers=1)
    >>> results.answer
    'none has test accuracy ...; there is no other arm.'
    >>> results.trials[["trial", "outcome"]].values.tolist()
    [['none/seed0/00000', 'finished']]
    >>> tuneparts.load("rotated_digits").answer == results.answer
    True
"""
