"""`tuneparts report | compare | ranks`: print what runs have found."""

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts import atomic, settings
from tuneparts.cli.output import Form, terminal
from tuneparts.cli.output import write as write_rows
from tuneparts.errors import ConfigError
from tuneparts.search import runs

if TYPE_CHECKING:  # pandas takes half a second, and a wrong name is told before
    from rich.console import Console

    from tuneparts.api import Results
    from tuneparts.reports.always_valid import Decision
    from tuneparts.reports.benchmark import Benchmark
    from tuneparts.reports.compare import Comparison
    from tuneparts.reports.run_data import RunData
    from tuneparts.reports.statistics import Interval


def load(name: str | None) -> "Results":
    """Find a run or published results first, and import what reads them then."""
    if name is not None and (Path(name) / "trials.csv").is_file():
        from tuneparts import api

        return api.load(name)
    run = runs.named(settings.current().results_dir, name, begun=True)
    from tuneparts import api

    return api.Results(run)


def report(name: str | None, *, open_page: bool, form: Form = Form.TABLE) -> None:
    """Print a run's answer and table, and write its files; for a program, the table alone.

    Args:
        name: the run, or a folder of published results; None for the newest run.
        open_page: in a browser.
        form: for a person or a program.
    """
    console = terminal(form)
    with console.status("reading the run"):
        results = load(name)
    if form is not Form.TABLE:
        write(results, form)
        return
    paths = show(results, console)
    if open_page:
        webbrowser.open(paths["report.html"].absolute().as_uri())


def show(results: "Results", console: "Console") -> dict[str, Path]:
    """Print the answer and the tables of a run, write its report, and say where it lies."""
    from tuneparts.reports import rendering

    console.print(results.answer, highlight=False, markup=False)
    rendering.show(console, *results.data.tables)
    with console.status("writing the report"):
        paths = results.write_report()
    page = short(paths["report.html"])
    console.print(
        f"report      {page} (with {len(paths) - 1} tables and figures beside it)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return paths


def short(path: Path) -> Path:
    """A path from here on, if it leads there; to be copied from one line."""
    here = Path.cwd()
    return path.absolute().relative_to(here) if path.absolute().is_relative_to(here) else path


def write(results: "Results", form: Form) -> None:
    """Print what a run found for a program: a row per arm, with means and standard errors."""
    rows = results.table.to_dict("records")
    question = results.data.metadata.question
    facts = {"run": results.name, "question": question, "answer": results.answer}
    write_rows(form, "arms", [{str(k): v for k, v in row.items()} for row in rows], **facts)


def compare(
    name: str | None,
    *,
    pairs: str | None,
    against: str | None,
    metric: str,
    within: float | None,
    at: str | None = None,
    form: Form = Form.TABLE,
) -> None:
    """Print verdicts on pairs of arms."""
    asked = None
    if pairs is not None:  # a pair that is asked for twice is one comparison
        asked = list(dict.fromkeys(parse_pair(text) for text in pairs.split(",")))
    results = load(name)
    from tuneparts.reports import compare as comparing
    from tuneparts.reports import on_the_way, rendering

    found = results.compare(asked, against=against, metric=metric, within=within, at=at)
    data = results.data_at(at, metric=metric)
    margin = data.metadata.within if within is None else within
    compared = [(one.one, one.other) for one in found]
    remark = ""
    if at is not None:
        arms = list(dict.fromkeys(name for pair in compared for name in pair))
        remark = on_the_way.told(data, arms, *on_the_way.parse(at))
    told = comparing.decided(data.selected, data.metadata, compared, metric=metric, within=margin)
    if form is not Form.TABLE:
        rows = [_flat(one, told.get((one.one, one.other))) for one in found]
        facts = {"run": results.name, "metric": metric, "within": margin, "at": at}
        write_rows(form, "comparisons", rows, **facts)
        return
    table = comparing.table(
        found, data.metadata, metric=metric, within=margin, decisions=told, remark=remark
    )
    rendering.show(terminal(), table)


def _flat(found: "Comparison", decision: "Decision | None") -> dict[str, Any]:
    """A comparison as one row of numbers and words.

    Where replicates were added until it was decided, it has the interval that holds all the same.
    """
    row = {**vars(found), **_bounds("", found.interval)}
    del row["interval"]
    if decision is not None:
        row |= _bounds("always_valid_", decision.interval)
        row["always_valid_verdict"] = decision.verdict or "cannot tell"
    return row


def _bounds(prefix: str, span: "Interval | None") -> dict[str, float | None]:
    values = (None,) * 3 if span is None else (span.low, span.high, span.level)
    return {f"{prefix}{name}": v for name, v in zip(("low", "high", "level"), values, strict=True)}


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
    against: str | None = None,
    out: Path | None = None,
    mix_scales: bool = False,
    form: Form = Form.TABLE,
) -> None:
    """Print the arms that several runs share, by their scores over the runs."""
    from tuneparts.cli import plots

    if plot is not None:
        plots.check(plot)
    found = list({one.name: one for one in map(load, _apart(names))}.values())
    searches = {one.name: one.search_facts for one in found}
    if not mix_scales:
        refuse_mixed_scales({name: str(facts.get("scale")) for name, facts in searches.items()})
    from tuneparts.reports import benchmark, rendering
    from tuneparts.reports import ranks as over_tasks
    from tuneparts.reports.figures import benchmarks
    from tuneparts.reports.figures.sweeps import tasks
    from tuneparts.reports.page import benchmark_page

    console = terminal(form)
    with console.status("reading the runs"):
        read = [one.data for one in found]
    setting, values = difference({name: facts["data"] or {} for name, facts in searches.items()})
    labels = [value if setting == "run" else f"{setting} {value}" for value in values]
    named = list(zip(map(str, labels), read, strict=True))
    together = benchmark.collect(named, metric, against=against)
    table = over_tasks.table(named, together)
    if form is Form.TABLE:
        rendering.show(console, table)
    else:
        facts = {
            "runs": list(searches),
            "metric": metric,
            "normalised": list(together.references),
            "against": together.against,
        }
        write_rows(form, "arms", _ranked(named, together), **facts)
    if out is not None:
        text = benchmark_page(table, benchmarks.draw(named, together))
        atomic.write_text(out / "benchmark.html", text)
        atomic.write_text(out / "benchmark.md", rendering.to_markdown([table]))
        console.print(f"benchmark   {out / 'benchmark.html'}", highlight=False, soft_wrap=True)
    if plot is not None:
        plots.write(plot, tasks(dict(zip(values, read, strict=True)), setting, metric))


def _apart(names: Sequence[str]) -> Sequence[str]:
    """Refuse two released folders of one name, which a table could not tell apart."""
    folders = {Path(name).resolve() for name in names if Path(name).is_dir()}
    if len({folder.name for folder in folders}) < len(folders):
        raise ConfigError(
            "released folders of a benchmark have names of their own, but got "
            f"{', '.join(sorted(map(str, folders)))}. Rename one."
        )
    return names


def _ranked(named: "Sequence[tuple[str, RunData]]", found: "Benchmark") -> list[dict[str, Any]]:
    """The arms of a benchmark as rows of numbers, the best first."""
    from tuneparts.reports.compare import FEWEST

    ranks_TA, middle, improved = found.ranks, found.interquartile_means(), found.improvements()
    rows = []
    for position, arm in enumerate(found.arms):
        mean, span = middle[arm]
        says = found.fewest_replicates >= FEWEST
        row: dict[str, Any] = {"arm": arm, "interquartile_mean": mean}
        row |= _bounds("", span if says else None)
        if found.against is not None:
            better, around = improved.get(arm, (None, None))
            row |= {"p_better": better, **_bounds("p_better_", around if says else None)}
        row["mean_rank"] = float(ranks_TA[:, position].mean())
        for number, (task, data) in enumerate(named):
            own = data.summary.set_index("arm").loc[arm]
            row |= {task: own[found.metric], f"{task}:se": own[f"{found.metric}:se"]}
            row[f"{task}:rank"] = float(ranks_TA[number, position])
        rows.append(row)
    sign = -1 if found.prefers_larger else 1
    return sorted(rows, key=lambda row: sign * row["interquartile_mean"])


def refuse_mixed_scales(scales: Mapping[str, str]) -> None:
    """Refuse to compare runs of several scales together unasked: a smoke run says nothing.

    Args:
        scales: of each run, by its name.

    Raises:
        ConfigError: They are of several scales.
    """
    if len(set(scales.values())) > 1:
        told = ", ".join(f"{name} is {scale}" for name, scale in scales.items())
        raise ConfigError(
            f"ranks compare runs of one scale, but {told}. Name runs of one scale, or say "
            "`--mix-scales`."
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
