"""Small tables that a finished learner leaves, for figures that numbers over steps cannot make."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Columns: TypeAlias = Mapping[str, Sequence[float | str]]
"""A table: column name to values, all of one length."""


def to_csv(columns: Columns) -> str:
    r"""Write a table as CSV with a header; numbers have six digits, more than a figure shows.

    Example:
        >>> to_csv({"layer": ["a", "b"], "mu": [0.5, 1 / 3]})
        'layer,mu\na,0.5\nb,0.333333\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row)
    return text.getvalue()
