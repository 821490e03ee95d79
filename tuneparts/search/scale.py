"""The size at which a question is asked; known without importing torch."""

from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Scale(StrEnum):
    """The size at which a question is asked."""

    SMOKE = "smoke"
    """Seconds: does everything run?"""
    CPU = "cpu"
    """Minutes to an hour on a small machine: does the effect show?"""
    PAPER = "paper"
    """The published setting, on GPUs."""

    def pick(self, *, smoke: T, cpu: T, paper: T) -> T:
        """Choose the value for this scale.

        Example:
            >>> Scale.SMOKE.pick(smoke=10, cpu=1_000, paper=100_000)
            10
        """
        return {Scale.SMOKE: smoke, Scale.CPU: cpu, Scale.PAPER: paper}[self]
