"""`tuneparts report | ranks`: print what runs have found."""

import dataclasses
import json
import math
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tuneparts import api, atomic, settings
from tuneparts.errors import ConfigError
from tuneparts.search import runs


def report(name: str | None, *, open_page: bool, by_source: bool = False) -> None:
    """Print a run's table and answer, and write its files; or its spread by source."""
    console = Console()
    if by_source:
        from tuneparts.reports import rendering, variance

        data = (results := api.load(name)).data
        found = results.variance()
        rendering.show(console, variance.table(found, data.metadata, data.answer_metric))
        return
    with console.status("reading the run"):
        results = api.load(name)
        paths = show(results, console)
    if open_page:
        webbrowser.open(paths["report.html"].as_uri())


def show(results: api.Results, console: Console) -> dict[str, Path]:
    """Print the tables and the answer of a run, write its report, and say where it lies."""
    from tuneparts.reports import rendering

    rendering.show(console, *results.data.tables)
    console.print(results.answer, highlight=False)
    with console.status("writing the report"):
        paths = results.write_report()
    page = paths["report.html"]
    console.print(
        f"report      {page} (with {len(paths) - 1} tables and figures beside it)",
        highlight=False,
        soft_wrap=True,
    )
    return paths


def compare(
    name: str | None,
    *,
    pairs: str | None,
    against: str | None,
    metric: str,
    within: float | None,
    as_json: bool,
) -> None:
    """Print verdicts on pairs of arms."""
    from tuneparts.reports import compare as comparing
    from tuneparts.reports import rendering

    results = api.load(name)
    asked = None if pairs is None else [parse_pair(text) for text in pairs.split(",")]
    found = results.compare(asked, against=against, metric=metric, within=within)
    if as_json:
        rows = [dataclasses.asdict(one) for one in found]
        for row in rows:  # JSON has no NaN
            row |= {"effect": None if math.isnan(row["effect"]) else row["effect"]}
        print(json.dumps({"run": results.name, "metric": metric, "comparisons": rows}))
        return
    margin = results.data.metadata.within if within is None else within
    table = comparing.table(found, results.data.metadata, metric=metric, within=margin)
    rendering.show(Console(), table)


def parse_pair(text: str) -> tuple[str, str]:
    """Read two arms from `a:b`.

    Example:
        >>> parse_pair("partitioned:random")
        ('partitioned', 'random')
    """
    one, separator, other = text.partition(":")
    if not (one and separator and other):
        raise ConfigError(f"a pair of arms is written as `a:b`, but got `{text}`.")
    return one.strip(), other.strip()


def ranks(
    names: Sequence[str],
    *,
    metric: str,
    plot: Path | None,
    out: Path | None = None,
    mix_scales: bool = False,
) -> None:
    """Print the arms that several runs share, by their scores over the runs."""
    from tuneparts.cli import plots
    from tuneparts.reports import benchmark, rendering
    from tuneparts.reports import ranks as over_tasks
    from tuneparts.reports.figures import benchmarks
    from tuneparts.reports.figures.sweeps import tasks
    from tuneparts.reports.page import benchmark_page

    if plot is not None:
        plots.check(plot)
    root = settings.current().results_dir
    found = list(dict.fromkeys(runs.named(root, name) for name in names))
    if not mix_scales:
        refuse_mixed_scales({run.name: str(run.card["search"].get("scale")) for run in found})
    console = Console()
    with console.status("reading the runs"):
        read = [api.Results(run).data for run in found]
    setting, values = difference({run.name: run.card["search"]["data"] for run in found})
    labels = [value if setting == "run" else f"{setting} {value}" for value in values]
    named = list(zip(map(str, labels), read, strict=True))
    together = benchmark.collect(named, metric)
    table = over_tasks.table(named, together)
    rendering.show(console, table)
    if out is not None:
        text = benchmark_page(table, benchmarks.draw(named, together))
        atomic.write_text(out / "benchmark.html", text)
        atomic.write_text(out / "benchmark.md", rendering.to_markdown([table]))
        console.print(f"benchmark   {out / 'benchmark.html'}", highlight=False, soft_wrap=True)
    if plot is not None:
        plots.write(plot, tasks(dict(zip(values, read, strict=True)), setting, metric))


def refuse_mixed_scales(scales: Mapping[str, str]) -> None:
    """Refuse runs of different scales; a smoke test is no benchmark.

    Raises:
        ConfigError: With what each has.
    """
    if len(set(scales.values())) > 1:
        listed = ", ".join(f"{name} {scale}" for name, scale in scales.items())
        raise ConfigError(
            f"runs of one scale are compared, but got {listed}. Name runs of one scale, or say "
            "`--mix-scales` if you mean it."
        )


def difference(data: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """The one field of the data in which runs of a search differ, with its values.

    Where there is no such field, `run` and the runs' names.

    Args:
        data: the data config of each run, by the run's name.
    """
    first, *others = data.values()
    fields = [key for key in first if any(other.get(key) != first[key] for other in others)]
    searches = {name.partition("/")[0] for name in data}
    if len(fields) == len(searches) == 1:
        values = [config.get(fields[0]) for config in data.values()]
        if len(set(map(str, values))) == len(values):
            return fields[0], ["all" if value is None else value for value in values]
    return "run", list(data)
