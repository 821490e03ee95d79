"""The progress of a running search: a table that moves on a terminal, else a line per tenth."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuneparts.core.schema import lookup
from tuneparts.results.progress import clock, share
from tuneparts.results.rendering import Cell, Table, to_rich
from tuneparts.search.journal import (
    Event,
    ReplicateStopped,
    Row,
    TrialEnded,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
)

_ROOMY = 110
"""Characters of a terminal that has room for a long bar of progress."""
_BAR = 30
_TENTHS = 10


@dataclass
class _ArmState:
    """What is known of an arm; its fraction is kept as sums, for it is asked at every event."""

    total: int
    budget: int
    num_seeds: int
    passes: dict[TrialId, int] = field(default_factory=dict)
    spent: int = 0
    """Passes of the trials that have not ended, at most the budget of each."""
    queued: set[TrialId] = field(default_factory=set)
    """Trials with a config that no worker has taken up."""
    running: set[TrialId] = field(default_factory=set)
    ended: dict[TrialId, str] = field(default_factory=dict)
    num_ended: Counter[int] = field(default_factory=Counter)
    """By seed."""
    best: float | None = None
    last: dict[str, float] = field(default_factory=dict)
    """The newest value of every metric."""
    stopped: set[int] = field(default_factory=set)
    """Seeds under which nothing more runs."""

    @property
    def fraction(self) -> float:
        """Share of the arm's passes that is over."""
        ended = sum(count for seed, count in self.num_ended.items() if seed not in self.stopped)
        ended += len(self.stopped) * self.total // self.num_seeds
        begun = self.spent / self.budget if self.budget else 0.0
        return share((), ended + begun, total=self.total, budget=self.budget)

    def count(self, outcome: str) -> int:
        return sum(1 for one in self.ended.values() if one == outcome)

    def run(self, trial: TrialId) -> None:
        self.queued.discard(trial)
        self.running.add(trial)

    def advance(self, trial: TrialId, passes: int) -> None:
        self.run(trial)
        before = min(self.passes.get(trial, 0), self.budget)
        if trial not in self.ended:
            self.spent += min(passes, self.budget) - before
        self.passes[trial] = passes

    def end(self, trial: TrialId, outcome: str) -> None:
        self.queued.discard(trial)
        self.running.discard(trial)
        if trial not in self.ended:
            self.spent -= min(self.passes.get(trial, 0), self.budget)
            self.num_ended[trial.seed] += 1
        self.ended[trial] = outcome

    def reopen(self, trial: TrialId) -> None:
        if self.ended.pop(trial, None) is not None:
            self.spent += min(self.passes.get(trial, 0), self.budget)
            self.num_ended[trial.seed] -= 1
            self.queued.add(trial)


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
        arm, trial = self._arms[event.trial.arm], event.trial
        if isinstance(event, TrialStarted):
            if trial not in arm.running and trial not in arm.ended:
                arm.queued.add(trial)
        elif isinstance(event, TrialRunning):
            arm.run(trial)
        elif isinstance(event, Row):
            arm.advance(trial, event.step)
            self._take_scores(arm, event.metrics)
        elif isinstance(event, TrialEnded):
            arm.end(trial, event.outcome)
        elif isinstance(event, TrialVoided):
            arm.end(trial, "stopped")
        elif isinstance(event, TrialRetried):
            arm.reopen(trial)
        elif isinstance(event, ReplicateStopped):
            arm.stopped.add(trial.seed)

    def _take_scores(self, arm: _ArmState, metrics: Mapping[str, float]) -> None:
        arm.last |= metrics
        score = metrics.get(self._metric.name)
        if score is None or not math.isfinite(score):
            return
        if arm.best is None or self._metric.better(score, arm.best):
            arm.best = score

    @property
    def fraction(self) -> float:
        """Share of all passes that is over."""
        whole = sum(arm.total * arm.budget for arm in self._arms.values())
        return sum(a.fraction * a.total * a.budget for a in self._arms.values()) / whole

    def render(self) -> Group:
        """The sums first, then a line per arm, as many as the terminal has room for."""
        sums = Text("\n".join(self._lines()))
        whole = Group(sums, to_rich(self._table(list(self._arms)), self._console.width))
        if self._height(whole) <= self._room:
            return whole
        names = sorted(self._arms, key=self._place)
        around = self._height(Group(sums, to_rich(self._table(names[:1]), self._console.width))) - 1
        count = max(1, self._room - around - 1)
        hidden = [self._arms[name] for name in names[count:]]
        done = sum(1 for arm in hidden if len(arm.ended) >= arm.total)
        rest = f"and {len(hidden)} more arms, {done} of them done"
        return Group(sums, to_rich(self._table(names[:count]), self._console.width), Text(rest))

    @property
    def _room(self) -> int:
        return self._console.height - 1  # the cursor stands below

    def _height(self, what: Group) -> int:
        return len(self._console.render_lines(what, pad=False))

    def _place(self, name: str) -> tuple[bool, bool, bool]:
        """Order of arms where not all are shown: at work, begun, waiting, done."""
        arm = self._arms[name]
        return len(arm.ended) >= arm.total, self._running(name) == 0, not arm.passes

    def _running(self, name: str) -> int:
        arm = self._arms[name]
        begun = len(arm.running)
        return begun if self._at_work is None else min(begun, self._at_work().get(name, 0))

    def _waiting(self, name: str) -> int:
        arm = self._arms[name]
        return len(arm.queued) + len(arm.running) - self._running(name)

    def _table(self, names: list[str]) -> Table:
        rows = []
        room = _BAR if self._console.width >= _ROOMY else _BAR // 3
        for name in names:
            arm = self._arms[name]
            failed, done = arm.count("failed"), round(room * arm.fraction)
            rows.append(
                [
                    name,
                    f"{'━' * done}{'─' * (room - done)} {_percent(arm.fraction)}",
                    self._running(name) or "",
                    self._waiting(name) or "",
                    f"{arm.count('finished')}/{arm.total}",
                    arm.count("stopped") or "",
                    Cell(str(failed or ""), is_bold=True),
                    self._score(arm),
                ]
            )
        counts = ["running", "waiting", "done", "stopped", "failed"]
        headers = ["arm", "progress", *counts, f"best {self._metric.name}"]
        details = {"stopped": 5, "waiting": 4, "running": 3, "failed": 2, "done": 1, headers[-1]: 1}
        return Table.of_rows(headers, rows, numbers=headers[2:], details=details)

    def _score(self, arm: _ArmState) -> str:
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
            "stopped": sum(arm.count("stopped") for arm in arms.values()),
            "failed": sum(arm.count("failed") for arm in arms.values()),
        }
        done = sum(arm.count("finished") for arm in arms.values())
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
