"""Writes docs/results.md: every table, verdict and claim from the released files of its run.

`python docs/results.py` reads docs/results.toml, which says what is shown and in which words, and
the folders `docs/results/NAME` that `tuneparts export NAME --to results` made. No number of the
page is typed; a test keeps it true. `python docs/plots.py` draws its figures afterwards.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from tuneparts.core import schema
from tuneparts.results import ranks, rendering
from tuneparts.results.compare import Comparison, Decision
from tuneparts.results.export import Published

HERE = Path(__file__).parent
PAGE = HERE / "results.md"
METRIC = "test/accuracy"
NUMBER = re.compile(r"\{(\w+):(\w+):([\w/]+)\}")
"""Stands in a sentence for a number of a run: {run:arm:column}."""


@cache
def results(name: str) -> Published:
    """What a run has released."""
    return Published(HERE / "results" / name)


def page() -> str:
    """The whole page."""
    told = _told()
    parts = ["# Results", told["opening"].strip(), *_claims(told["claims"])]
    for section in told["sections"]:
        parts += _together(section) if "runs" in section else _section(section)
    return NUMBER.sub(_number, "\n\n".join([*parts, told["closing"].strip()])) + "\n"


def _number(match: re.Match[str]) -> str:
    """A mean with its standard error, in the place of its name."""
    return _score(results(match[1]), match[2], match[3])


def _claims(papers: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each paper: what it says, the verdict, and what shows it."""
    yield "## What the papers claim"
    for paper in papers:
        lines = ["| claim | verdict | what shows it |", "|---|---|---|"]
        for claim in paper["claim"]:
            verdict, evidence = _judged(claim)
            lines.append(f"| {claim['says']} | {verdict} | {evidence} |")
        yield f"### {paper['paper']}"
        if "words" in paper:
            yield paper["words"].strip()
        yield "\n".join(lines)


def _judged(claim: dict[str, Any]) -> tuple[str, str]:
    """Verdict and evidence: by comparisons of the run's own section, or as the log has them."""
    if "verdict" in claim:
        return claim["verdict"], claim["evidence"]
    verdicts, parts = [], []
    for name, pair, *at in claim["pairs"]:
        said, gap = _said(name, pair, *at)
        verdicts.append(_verdict(said, claim["expects"]))
        where = "".join(f" at {_count(one)}" for one in at)
        parts.append(f"`{name}`: {pair.replace(':', ' - ')} {gap} ({said}){where}")
    agreed = verdicts[0] if len(set(verdicts)) == 1 else ", ".join(verdicts)
    return agreed, "; ".join(parts)


def _verdict(said: str, expected: str) -> str:
    """Whether a comparison says what a claim expects."""
    word = said.partition(",")[0].partition(" within")[0]
    if word.startswith("inconclusive"):
        return "inconclusive"
    if expected == "equivalent" and "by less than" in said:  # a difference that the margin holds
        return "holds"
    if expected == "not worse":
        return "does not hold" if word == "worse" else "holds"
    return "holds" if word == expected else "does not hold"


def _count(at: str) -> str:
    """A cost in words.

    Example:
        >>> _count("updates=1200")
        '1,200 updates'
    """
    name, _, count = at.partition("=")
    return f"{int(count):,} {name.replace('_', ' ')}"


def _said(name: str, pair: str, at: str | None = None) -> tuple[str, str]:
    """Verdict on a pair among all of its section, and its difference with the interval."""
    (section,) = [one for one in _told()["sections"] if one.get("run") == name]
    found = _compared(section, at)[pair]
    low, high, said = found.interval, found.interval, found.verdict
    if section.get("until_decided") == pair:
        sequential = _decided(section)
        low, high, said = sequential.interval, sequential.interval, sequential.verdict
    if low is None or high is None:
        return said, f"{found.difference:+.4f}"
    return said or "inconclusive", f"{found.difference:+.4f}, {low.low:+.4f} to {high.high:+.4f}"


@cache
def _told() -> dict[str, Any]:
    return tomllib.loads((HERE / "results.toml").read_text("utf-8"))


def _compared(section: dict[str, Any], at: str | None = None) -> dict[str, Comparison]:
    """All comparisons of a section at the end, or at a cost on the way."""
    found: dict[str, Comparison] = {}
    for family in _families(section):
        found |= _family(section, family, at)
    return found


def _families(section: dict[str, Any]) -> list[list[str]]:
    """Sets of pairs; those of one set are adjusted for each other."""
    pairs = section.get("pairs", [])
    return pairs if pairs and isinstance(pairs[0], list) else [pairs] if pairs else []


def _family(section: dict[str, Any], pairs: list[str], at: str | None) -> dict[str, Comparison]:
    both = [(one, other) for one, other in (pair.split(":") for pair in pairs)]
    within = section.get("within")
    found = results(section["run"]).comparisons_of(both, within=within, metric=METRIC, at=at)
    return dict(zip(pairs, found, strict=True))


def _decided(section: dict[str, Any]) -> Decision:
    """The verdict that holds although replicates were added while looking."""
    one, other = section["until_decided"].split(":")
    return results(section["run"]).decide((one, other), within=section["within"])


def _section(section: dict[str, Any]) -> Iterator[str]:
    """Question, command, table, figure, verdicts and words of one run."""
    name = section["run"]
    yield f"## {section['title']}"
    needs = "TUNEPARTS_DATA=... " if section.get("needs_data") else ""
    origin = json.loads((HERE / "results" / name / "provenance.json").read_text("utf-8"))
    digest = origin["run"].rpartition("-")[2]  # as it began; replicates may have been added
    command = f"{needs}tuneparts search {section.get('command', name)}"
    raw = f"commit {origin['commit']}; {origin['machine']}; [raw data](results/{name})"
    then = " as it was then" if section.get("was_changed") else ""
    yield f"`{command}`{then} (digest {digest}, {raw}). {section['setting'].strip()}"
    yield f"![Test accuracy: {section['title']}](images/results/{name}.svg)"
    yield _table(section)
    for family in _families(section):
        yield "\n".join(_verdicts(section, family, None))
        if at := section.get("at"):
            yield "\n".join(_verdicts(section, family, at))
    if decided := list(_until_decided(section)):
        yield "\n".join(decided)
    if "words" in section:
        yield section["words"].strip()


def _together(section: dict[str, Any]) -> Iterator[str]:
    """Several runs as one benchmark."""
    runs = [(name, results(name)) for name in section["runs"]]
    yield f"## {section['title']}"
    yield section["setting"].strip()
    folders = " ".join(f"docs/results/{name}" for name in section["runs"])
    yield f"`tuneparts ranks {folders}`:"
    table = ranks.table(runs, ranks.collect(runs, METRIC))
    yield rendering.to_markdown([table]).strip()
    yield section["words"].strip()


def _verdicts(section: dict[str, Any], pairs: list[str], at: str | None) -> Iterator[str]:
    """A command, and what it says of a set of pairs."""
    given = [f"--pairs {','.join(pairs)}"]
    given += [f"--within {section['within']}"] if "within" in section else []
    command = f"`tuneparts compare docs/results/{section['run']} {' '.join(given)}`:"
    yield command if at is None else f"The same with `--at {at}`, at {_count(at)} of each:"
    yield ""
    for one in _family(section, pairs, at).values():
        yield f"- {one}."


def _until_decided(section: dict[str, Any]) -> Iterator[str]:
    """The interval that holds although replicates were added while looking."""
    if "until_decided" in section:
        found, pair = _decided(section), section["until_decided"].replace(":", " and ")
        low, high = found.interval.low, found.interval.high
        yield (
            f"- Seeds of {pair} were added while looking, so the interval above is too "
            f"narrow; {low:+.4f} to {high:+.4f} holds: {found.verdict or 'cannot tell'}."
        )


def _table(section: dict[str, Any]) -> str:
    """A row per arm: score, what else the section asks for, steps and seconds of a seed."""
    summary: pd.DataFrame = results(section["run"]).summary.set_index("arm")
    columns: dict[str, str] = {METRIC: "test accuracy", **section.get("columns", {})}
    lines = [
        f"| arm | {' | '.join(columns.values())} | total steps per seed | seconds |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for arm, words in section["arms"].items():
        row = summary.loc[arm]
        cells = [_score(results(section["run"]), arm, column) for column in columns]
        failed = f" ({row['failed']} of {row['expected']} trials failed)" if row["failed"] else ""
        cost = f"{row['total_steps']:,.0f} | {row['total_seconds']:,.0f}"
        lines.append(f"| {words or arm}{failed} | {' | '.join(cells)} | {cost} |")
    return "\n".join(lines)


def _score(found: Published, arm: str, column: str) -> str:
    """Mean and standard error of an arm, also of what the summary of a run leaves out."""
    row = found.summary.set_index("arm").loc[arm]
    if column not in row:
        chosen = found.selected
        values = chosen.loc[chosen["arm"] == arm].get(column, pd.Series(dtype=float))
        row = pd.Series({column: values.mean(), f"{column}:se": values.sem()})
    return _cell(row, column)


def _cell(row: "pd.Series[Any]", column: str) -> str:
    """Mean and standard error at the digits of the metric."""
    value, error = row.get(column), row.get(f"{column}:se")
    if value is None or pd.isna(value):
        return "-"
    decimals = min(3, schema.lookup(column).decimals)
    if error is None or pd.isna(error):
        return f"{value:,.{decimals}f}"
    return f"{value:,.{decimals}f} ± {error:,.{decimals}f}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
