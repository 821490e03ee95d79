"""The progress of a running search: a table that moves on a terminal, else a line per tenth."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuneparts.core.schema import lookup
from tuneparts.results.progress import clock, share
from tuneparts.results.rendering import Cell, Table, to_rich
from tuneparts.results.select import OUTCOMES
from tuneparts.search.events import Event, Row, TrialId, TrialRunning
from tuneparts.search.state import RunState

_ROOMY = 110
"""Characters of a terminal that has room for a long bar of progress."""
_BAR = 30
_TENTHS = 10


@dataclass
class _Arm:
    """An arm on the screen; `spent` is kept as a sum, for the fraction is asked at every event."""

    total: int
    budget: int
    seeds: Sequence[int]
    spent: int = 0
    """Passes of the trials that have not ended, at most the budget of each."""
    has_rows: bool = False
    best: float | None = None
    last: dict[str, float] = field(default_factory=dict)
    """The newest value of every metric."""


class LiveView:
    """Observes a search and draws its state.

    On a terminal it is redrawn twice a second, at most as high as the terminal: where there are
    more arms than lines, those at work are shown and the others are counted. Elsewhere (a pipe, a
    log, a notebook) a line is printed for each tenth of the work.

    Args:
        search: the resolved search.
        console: where to draw.
        starting: what happens until the first trial runs, as in `starting Ray`.
    """

    def __init__(self, search: Any, console: Console, *, starting: str = "starting") -> None:
        self._metric = lookup(search.metric)
        self._console = console
        self._starting: str | None = starting
        self._created = time.time()
        self._start = time.monotonic()
        self._fraction_at_start: float | None = None
        self._tenth = 0
        self._at_work: Callable[[], Mapping[str, int]] | None = None
        self._state = RunState(keep_rows=False)
        self._arms = {
            arm.name: _Arm(
                arm.trials_per_seed * len(search.seeds_of(arm)),
                budget=arm.config.passes,
                seeds=search.seeds_of(arm),
            )
            for arm in search.arms
        }
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=2, transient=True
        )

    def watch(self, at_work: Callable[[], Mapping[str, int]]) -> None:
        """Ask from now on who is at work.

        Events alone do not say that a trial waits at a rung.

        Args:
            at_work: arm -> how many of its trials workers have now.
        """
        self._at_work = at_work

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._live.start(refresh=True)
        else:
            self._print(str(self._starting))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        is_new = event.time >= self._created
        if self._fraction_at_start is None and is_new:
            # What a resumed run already had took no time now.
            self._start = time.monotonic()
            self._fraction_at_start = self.fraction
            self._tenth = int(_TENTHS * self.fraction)
        self._take(event)
        if is_new and isinstance(event, TrialRunning | Row):
            self._starting = None
        tenth = int(_TENTHS * self.fraction)
        if is_new and tenth > self._tenth:
            self._tenth = tenth
            if not self._console.is_terminal:
                self._print(", ".join(self._lines()))

    def _take(self, event: Event) -> None:
        arm = self._arms[event.trial.arm]
        arm.spent -= self._open_passes(event.trial)
        self._state.apply(event)
        arm.spent += self._open_passes(event.trial)
        if isinstance(event, Row):
            arm.has_rows = True
            arm.last |= event.metrics
            score = event.metrics.get(self._metric.name, math.nan)
            if math.isfinite(score) and (arm.best is None or self._metric.better(score, arm.best)):
                arm.best = score

    def _open_passes(self, trial: TrialId) -> int:
        """Passes of a trial that has not ended, at most its budget."""
        record = self._state.trials.get(trial)
        if record is None or record.end is not None or record.last is None:
            return 0
        return min(record.last.step, self._arms[trial.arm].budget)

    def _count(self, name: str, *statuses: str) -> int:
        """How many trials of an arm have one of these statuses."""
        counts = [self._state.counts[name, seed] for seed in self._arms[name].seeds]
        return sum(count[status] for count in counts for status in statuses)

    def _share(self, name: str) -> float:
        """Share of an arm's passes that is over."""
        arm = self._arms[name]
        stopped = [seed for seed in arm.seeds if (name, seed) in self._state.stops]
        counts = [self._state.counts[name, seed] for seed in arm.seeds if seed not in stopped]
        ended = sum(count[outcome] for count in counts for outcome in OUTCOMES)
        ended += len(stopped) * arm.total // len(arm.seeds)
        begun = arm.spent / arm.budget if arm.budget else 0.0
        return share((), ended + begun, total=arm.total, budget=arm.budget)

    @property
    def fraction(self) -> float:
        """Share of all passes that is over."""
        weights = {name: arm.total * arm.budget for name, arm in self._arms.items()}
        return sum(self._share(name) * weights[name] for name in weights) / sum(weights.values())

    def render(self) -> Group:
        """The sums first, then a line per arm, as many as the terminal has room for."""
        sums = Text("\n".join(self._lines()))
        whole = Group(sums, to_rich(self._table(list(self._arms)), self._console.width))
        if self._height(whole) <= self._room:
            return whole
        names = sorted(self._arms, key=self._place)
        around = self._height(Group(sums, to_rich(self._table(names[:1]), self._console.width))) - 1
        count = max(1, self._room - around - 1)
        hidden = names[count:]
        done = sum(map(self._is_done, hidden))
        rest = f"and {len(hidden)} more arms, {done} of them done"
        return Group(sums, to_rich(self._table(names[:count]), self._console.width), Text(rest))

    @property
    def _room(self) -> int:
        return self._console.height - 1  # the cursor stands below

    def _height(self, what: Group) -> int:
        return len(self._console.render_lines(what, pad=False))

    def _is_done(self, name: str) -> bool:
        return self._count(name, *OUTCOMES) >= self._arms[name].total

    def _place(self, name: str) -> tuple[bool, bool, bool]:
        """Order of arms where not all are shown: at work, begun, waiting, done."""
        return self._is_done(name), self._running(name) == 0, not self._arms[name].has_rows

    def _running(self, name: str) -> int:
        begun = self._count(name, "running")
        return begun if self._at_work is None else min(begun, self._at_work().get(name, 0))

    def _waiting(self, name: str) -> int:
        return self._count(name, "queued", "running") - self._running(name)

    def _table(self, names: list[str]) -> Table:
        rows = []
        room = _BAR if self._console.width >= _ROOMY else _BAR // 3
        for name in names:
            arm, part = self._arms[name], self._share(name)
            failed, done = self._count(name, "failed"), round(room * part)
            rows.append(
                [
                    name,
                    f"{'━' * done}{'─' * (room - done)} {_percent(part)}",
                    self._running(name) or "",
                    self._waiting(name) or "",
                    f"{self._count(name, 'finished')}/{arm.total}",
                    self._count(name, "stopped") or "",
                    Cell(str(failed or ""), is_bold=True),
                    self._score(arm),
                ]
            )
        counts = ["running", "waiting", "done", "stopped", "failed"]
        headers = ["arm", "progress", *counts, f"best {self._metric.name}"]
        details = {"stopped": 5, "waiting": 4, "running": 3, "failed": 2, "done": 1, headers[-1]: 1}
        return Table.of_rows(headers, rows, numbers=headers[2:], details=details)

    def _score(self, arm: _Arm) -> str:
        """The best selection score; of an arm without validation data the newest other, named."""
        if arm.best is not None:
            return f"{arm.best:.{self._metric.decimals}f}"
        quantity = self._metric.name.partition("/")[2]
        for name in (f"test/{quantity}", "train/loss"):
            if name in arm.last:
                return f"{name} {arm.last[name]:.{lookup(name).decimals}f}"
        return ""

    def _lines(self) -> list[str]:
        """How far it is, and how long it will take; then the trials of all arms."""
        arms = self._arms
        counts = {
            "running": sum(map(self._running, arms)),
            "waiting": sum(map(self._waiting, arms)),
            "stopped": sum(self._count(name, "stopped") for name in arms),
            "failed": sum(self._count(name, "failed") for name in arms),
        }
        done = sum(self._count(name, "finished") for name in arms)
        total = sum(arm.total for arm in arms.values())
        said = [f"{done} of {total} trials done"]
        said += [f"{count} {what}" for what, count in counts.items() if count]
        first = f"{_percent(self.fraction)}, {self._time_left()}"
        return [first + (f", {self._starting}" if self._starting else ""), ", ".join(said)]

    def _time_left(self) -> str:
        elapsed = time.monotonic() - self._start
        gained = self.fraction - (self._fraction_at_start or 0.0)
        if self._fraction_at_start is None or gained <= 0:
            return f"{clock(elapsed)} elapsed"
        left = elapsed * (1 - self.fraction) / gained
        return f"{clock(elapsed)} elapsed, about {clock(left)} left"

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def _percent(fraction: float) -> str:
    """Whole per cent, rounded down: only what is over is 100 %."""
    return f"{int(100 * fraction + 1e-9):3d} %"
