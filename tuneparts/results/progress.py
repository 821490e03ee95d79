"""The live view of a search that runs here."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuneparts.core import schema
from tuneparts.results.rendering import Table, _Bold, _to_rich
from tuneparts.results.select import OUTCOMES
from tuneparts.search.events import Event, Row, TrialId, TrialRunning
from tuneparts.search.state import RunState

_ROOMY = 110
"""Characters of a terminal that has room for a long bar of progress."""
_BAR = 30
_TENTHS = 10


def clock(seconds: float) -> str:
    """Write seconds as a clock does: `2:03`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@dataclass
class _Arm:
    """An arm on the screen; `spent` is kept as a sum, for the fraction is asked at every event."""

    total: int
    budget: int
    seeds: Sequence[int]
    spent: int = 0  # steps of the trials that have not ended, at most the budget of each
    best: float | None = None
    last: dict[str, float] = field(default_factory=dict)  # newest value of every metric


class _LiveView:
    """Observes a search and draws its state.

    On a terminal it is redrawn twice a second, at most as high as the terminal: where there are
    more arms than lines, those at work are shown and the others are counted. Elsewhere a line is
    printed for each tenth of the work. `starting` is shown until the first trial runs.
    """

    def __init__(self, search: Any, console: Console, *, starting: str = "starting") -> None:
        self._metric = schema.lookup(search.metric)
        self._console = console
        self._starting: str | None = starting
        self._created = time.time()
        self._start = time.monotonic()
        self._fraction_at_start: float | None = None
        self._tenth = 0
        self._at_work: Callable[[], Mapping[str, int]] | None = None
        self._state = RunState(keep_rows=False)
        self._arms = {}
        for arm in search.arms:
            seeds = search.seeds_of(arm)
            self._arms[arm.name] = _Arm(arm.trials_per_seed * len(seeds), arm.config.steps, seeds)
        show = self.render
        self._live = Live(
            get_renderable=show, console=console, refresh_per_second=2, transient=True
        )

    def watch(self, at_work: Callable[[], Mapping[str, int]]) -> None:
        """Ask how many trials of each arm workers have: events do not say that one waits."""
        self._at_work = at_work

    def __enter__(self) -> "_LiveView":
        if self._console.is_terminal:
            self._live.start(refresh=True)
        else:
            self._console.print(self._starting, soft_wrap=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        is_new = event.time >= self._created
        if self._fraction_at_start is None and is_new:
            # What a resumed run already had took no time now.
            self._start, self._fraction_at_start = time.monotonic(), self.fraction
            self._tenth = int(_TENTHS * self.fraction)
        arm = self._arms[event.trial.arm]
        arm.spent -= self._open_steps(event.trial)
        self._state.apply(event)
        arm.spent += self._open_steps(event.trial)
        if isinstance(event, Row):
            arm.last |= event.metrics
            score = event.metrics.get(self._metric.name, math.nan)
            if math.isfinite(score) and (arm.best is None or self._metric.better(score, arm.best)):
                arm.best = score
        if is_new and isinstance(event, TrialRunning | Row):
            self._starting = None
        tenth = int(_TENTHS * self.fraction)
        if is_new and tenth > self._tenth:
            self._tenth = tenth
            if not self._console.is_terminal:
                self._console.print(", ".join(self._lines()), soft_wrap=True)

    def _open_steps(self, trial: TrialId) -> int:
        record = self._state.trials.get(trial)
        if record is None or record.end is not None or record.last is None:
            return 0
        return min(record.last.step, self._arms[trial.arm].budget)

    def _count(self, names: Iterable[str], *statuses: str) -> int:
        places = [(name, seed) for name in names for seed in self._arms[name].seeds]
        return sum(self._state.counts[place][status] for place in places for status in statuses)

    def _share(self, name: str) -> float:
        arm = self._arms[name]
        stopped = [seed for seed in arm.seeds if (name, seed) in self._state.stops]
        counts = [self._state.counts[name, seed] for seed in arm.seeds if seed not in stopped]
        ended = sum(count[outcome] for count in counts for outcome in OUTCOMES)
        ended += len(stopped) * arm.total // len(arm.seeds)
        return min(1.0, (ended + (arm.spent / arm.budget if arm.budget else 0.0)) / arm.total)

    @property
    def fraction(self) -> float:
        weights = {name: arm.total * arm.budget for name, arm in self._arms.items()}
        return sum(self._share(name) * weights[name] for name in weights) / sum(weights.values())

    def render(self) -> Group:
        sums = Text("\n".join(self._lines()))

        def drawn(names: Sequence[str], *below: Text) -> Group:
            return Group(sums, _to_rich(self._table(names), self._console.width), *below)

        def left(what: Group) -> int:
            lines = self._console.render_lines(what, pad=False)
            return self._console.height - 1 - len(lines)  # the cursor stands below

        whole = drawn(list(self._arms))
        if left(whole) >= 0:
            return whole
        names = sorted(self._arms, key=self._place)
        count = max(1, left(drawn(names[:1])))
        hidden = names[count:]
        rest = f"and {len(hidden)} more arms, {sum(map(self._is_done, hidden))} of them done"
        return drawn(names[:count], Text(rest))

    def _is_done(self, name: str) -> bool:
        return self._count([name], *OUTCOMES) >= self._arms[name].total

    def _place(self, name: str) -> tuple[bool, bool, bool]:
        """Order of arms where not all are shown: at work, begun, waiting, done."""
        is_begun = self._count([name], "running", *OUTCOMES) > 0
        return self._is_done(name), self._running(name) == 0, not is_begun

    def _running(self, name: str) -> int:
        begun = self._count([name], "running")
        return begun if self._at_work is None else min(begun, self._at_work().get(name, 0))

    def _waiting(self, name: str) -> int:
        return self._count([name], "queued", "running") - self._running(name)

    def _table(self, names: Sequence[str]) -> Table:
        rows = []
        room = _BAR if self._console.width >= _ROOMY else _BAR // 3
        for name in names:
            arm, part = self._arms[name], self._share(name)
            bar = f"{'━' * round(room * part):─<{room}} {_percent(part)}"
            ended = f"{self._count([name], 'finished')}/{arm.total}"
            stopped, failed = (self._count([name], one) or "" for one in ("stopped", "failed"))
            at_work = (self._running(name) or "", self._waiting(name) or "")
            rows.append([name, bar, *at_work, ended, stopped, _Bold(failed), self._score(arm)])
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
                return f"{name} {arm.last[name]:.{schema.lookup(name).decimals}f}"
        return ""

    def _lines(self) -> list[str]:
        part, elapsed = self.fraction, time.monotonic() - self._start
        first = f"{_percent(part)}, {clock(elapsed)} elapsed"
        gained = part - (self._fraction_at_start or 0.0)
        if self._fraction_at_start is not None and gained > 0:
            first += f", about {clock(elapsed * (1 - part) / gained)} left"
        first += f", {self._starting}" if self._starting else ""
        counts = {"running": sum(map(self._running, self._arms))}
        counts["waiting"] = sum(map(self._waiting, self._arms))
        counts |= {status: self._count(self._arms, status) for status in ("stopped", "failed")}
        total = sum(arm.total for arm in self._arms.values())
        said = [f"{self._count(self._arms, 'finished')} of {total} trials done"]
        said += [f"{count} {what}" for what, count in counts.items() if count]
        return [first, ", ".join(said)]


def _percent(fraction: float) -> str:
    return f"{int(100 * fraction + 1e-9):3d} %"  # rounded down: only what is over is 100 %
