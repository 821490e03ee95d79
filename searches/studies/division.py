"""How data and weights are dealt out in the grids of Mlodozeniec et al. (2023, appendix F).

The paper's grids are larger; these have the shares that its text speaks of: most at the beginning,
equal ones, and most at the end.
"""

GRIDS = {
    2: ((0.8, 0.2), (0.5, 0.5), (0.2, 0.8)),
    3: ((0.8, 0.1, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.1, 0.8)),
    4: ((0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25), (0.1, 0.2, 0.3, 0.4)),
}
"""Number of chunks -> shares of data, or of weights."""
