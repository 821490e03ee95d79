"""The live view of a running search: a line per arm, on a terminal only."""

import math
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuneparts.journal import (
    Event,
    ReplicateStopped,
    Row,
    StopLifted,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialVoided,
)
from tuneparts.reports.progress import clock, share
from tuneparts.reports.rendering import Cell, Table, to_rich
from tuneparts.schema import lookup

_ROOMY = 110
"""Characters of a terminal that has room for a long bar of progress."""
_BAR = 30


@dataclass
class _ArmState:
    total: int
    budget: int
    num_seeds: int
    passes: dict[TrialId, int] = field(default_factory=dict)
    running: set[TrialId] = field(default_factory=set)
    ended: dict[TrialId, str] = field(default_factory=dict)
    best: float | None = None
    stopped: set[int] = field(default_factory=set)
    """Seeds under which nothing more runs."""

    @property
    def fraction(self) -> float:
        """Share of the arm's passes that is over."""
        spent = [passes for trial, passes in self.passes.items() if trial not in self.ended]
        ended = sum(1 for trial in self.ended if trial.seed not in self.stopped)
        ended += len(self.stopped) * self.total // self.num_seeds
        return share(spent, ended, total=self.total, budget=self.budget)

    def count(self, outcome: str) -> int:
        return sum(1 for one in self.ended.values() if one == outcome)


class LiveView:
    """Observes a search and draws its state; says nothing where nobody looks."""

    def __init__(self, search: Any, console: Console) -> None:
        self._metric = lookup(search.metric)
        self._console = console
        self._created = time.time()
        self._start = time.monotonic()
        self._fraction_at_start: float | None = None
        self._arms = {
            arm.name: _ArmState(
                arm.trials_per_seed * len(search.seeds_of(arm)),
                budget=arm.config.passes,
                num_seeds=len(search.seeds_of(arm)),
            )
            for arm in search.arms
        }
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        if self._fraction_at_start is None and event.time >= self._created:
            # What a resumed run already had took no time now.
            self._start = time.monotonic()
            self._fraction_at_start = self.fraction
        arm = self._arms[event.trial.arm]
        if isinstance(event, TrialRunning):
            arm.running.add(event.trial)
        elif isinstance(event, Row):
            arm.running.add(event.trial)
            arm.passes[event.trial] = event.step
            score = event.metrics.get(self._metric.name)
            score = math.nan if score is None else score
            best = arm.best
            if math.isfinite(score) and (best is None or self._metric.better(score, best)):
                arm.best = score
        elif isinstance(event, TrialEnded):
            arm.running.discard(event.trial)
            arm.ended[event.trial] = event.outcome
        elif isinstance(event, TrialVoided):
            arm.ended[event.trial] = "stopped"
        elif isinstance(event, TrialRetried):
            arm.ended.pop(event.trial, None)
        elif isinstance(event, ReplicateStopped):
            arm.stopped.add(event.trial.seed)
        elif isinstance(event, StopLifted):
            arm.stopped.discard(event.trial.seed)

    @property
    def fraction(self) -> float:
        """Share of all passes that is over."""
        whole = sum(arm.total * arm.budget for arm in self._arms.values())
        return sum(a.fraction * a.total * a.budget for a in self._arms.values()) / whole

    def render(self) -> Group:
        """The table as it stands, and the time left."""
        rows = []
        room = _BAR if self._console.width >= _ROOMY else _BAR // 3
        for name, arm in self._arms.items():
            best = "" if arm.best is None else f"{arm.best:.{self._metric.decimals}f}"
            failed, done = arm.count("failed"), round(room * arm.fraction)
            rows.append(
                [
                    name,
                    "━" * done + "─" * (room - done),
                    len(arm.running) or "",
                    f"{arm.count('finished')}/{arm.total}",
                    arm.count("stopped") or "",
                    Cell(str(failed or ""), is_bold=True),
                    best,
                ]
            )
        counts = ["running", "done", "stopped", "failed"]
        headers = ["arm", "progress", *counts, f"best {self._metric.name}"]
        details = {"stopped": 2, "running": 1}
        table = Table.of_rows(headers, rows, numbers=headers[2:], details=details)
        return Group(to_rich(table, self._console.width), Text(self._time_left()))

    def _time_left(self) -> str:
        elapsed = time.monotonic() - self._start
        gained = self.fraction - (self._fraction_at_start or 0.0)
        if self._fraction_at_start is None or gained <= 0:
            return f"{clock(elapsed)} elapsed"
        left = elapsed * (1 - self.fraction) / gained
        return f"{clock(elapsed)} elapsed, about {clock(left)} left"
