"""Tables that a finished learner leaves, for figures that numbers over steps cannot make."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

Columns: TypeAlias = Mapping[str, Sequence[float | str]]
"""A table: column name to values, all of one length."""


@runtime_checkable
class Exhibitor(Protocol):
    """A learner with something to show besides its metrics."""

    def exhibits(self) -> Mapping[str, Columns]:
        """Small tables by name, once it has finished; no more than about a megabyte in all."""
        ...


def to_csv(columns: Columns) -> str:
    """With a header; numbers to six digits, which is more than a figure shows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row)
    return text.getvalue()
